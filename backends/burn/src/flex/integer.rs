//! Sums of integers and sorting, as loops over Burn's memory: Burn's sums panic on overflow in a debug build, and its
//! sort is not stable.

use std::cmp::Ordering;

use polygrad_core::{DType, Element, ReduceOp, Result, Shape};

use crate::flex::compare::{as_dtype, plain};
use crate::flex::support::refused;
use crate::flex::tensor::{BurnTensor, ensure_room};

/// Runs code with `T` as the Rust type in which Burn stores a dtype; bools are stored as `u8`.
macro_rules! stored {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            polygrad_core::DType::Bool | polygrad_core::DType::U8 => {
                type $T = u8;
                $body
            }
            polygrad_core::DType::I32 => {
                type $T = i32;
                $body
            }
            polygrad_core::DType::I64 => {
                type $T = i64;
                $body
            }
            polygrad_core::DType::F16 => {
                type $T = polygrad_core::f16;
                $body
            }
            polygrad_core::DType::BF16 => {
                type $T = polygrad_core::bf16;
                $body
            }
            polygrad_core::DType::F32 => {
                type $T = f32;
                $body
            }
            polygrad_core::DType::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}
pub(crate) use stored;

/// Sum or product over the middle of three axes, wrapping.
pub(crate) fn fold(op: ReduceOp, x: &BurnTensor) -> Result<BurnTensor> {
    let shape = x.shape();
    let (count, inner) = (shape[1], shape[2]);
    let (start, f): (i64, fn(i64, i64) -> i64) = match op {
        ReduceOp::Prod => (1, i64::wrapping_mul),
        _ => (0, i64::wrapping_add),
    };
    stored!(x.dtype(), T => {
        let Some(values) = x.values::<T>() else {
            return Err(refused(op.name(), x.dtype()));
        };
        let line = |i: usize| {
            let (block, column) = (i / inner * count * inner, i % inner);
            let terms = (0..count).map(|k| Element::to_i64(values[block + k * inner + column]));
            T::from_i64(terms.fold(start, f))
        };
        let out = shape.with_dim(1, 1);
        Ok(BurnTensor::from_values(out, (0..out.numel()).map(line).collect()))
    })
}

/// Running sum of integers, wrapping.
pub(crate) fn cumsum(x: &BurnTensor, axis: usize) -> Result<BurnTensor> {
    let shape = x.shape();
    let inner: usize = shape[axis + 1..].iter().product();
    stored!(x.dtype(), T => {
        let Some(values) = x.values::<T>() else {
            return Err(refused("cumsum", x.dtype()));
        };
        let mut out = values.to_vec();
        for block in out.chunks_mut(shape[axis] * inner) {
            for i in inner..block.len() {
                block[i] = T::from_i64(Element::to_i64(block[i]).wrapping_add(Element::to_i64(block[i - inner])));
            }
        }
        Ok(BurnTensor::from_values(shape, out))
    })
}

/// See [`Backend::sort`](polygrad_core::Backend::sort).
pub(crate) fn sort(x: &BurnTensor, axis: usize, descending: bool) -> Result<(BurnTensor, BurnTensor)> {
    let (shape, dtype) = (x.shape(), x.dtype());
    ensure_room(&shape, DType::I64)?;
    let x = plain(&x.contiguous()?);
    let (dim, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    stored!(dtype, T => {
        let Some(values) = x.values::<T>() else {
            return Err(refused("sort", dtype));
        };
        let (mut sorted, mut order) = (values.to_vec(), vec![0i64; values.len()]);
        let mut line: Vec<usize> = Vec::with_capacity(dim);
        for start in starts(&shape, axis) {
            line.clear();
            line.extend(0..dim);
            let at = |i: usize| values[start + i * inner];
            if descending {
                line.sort_by(|&a, &b| order_of(at(b), at(a)));
            } else {
                line.sort_by(|&a, &b| order_of(at(a), at(b)));
            }
            for (to, &from) in line.iter().enumerate() {
                sorted[start + to * inner] = at(from);
                order[start + to * inner] = from as i64;
            }
        }
        Ok((as_dtype(BurnTensor::from_values(shape, sorted), dtype), BurnTensor::from_values(shape, order)))
    })
}

/// By value, with NaN as the largest; zeros of either sign are equal.
fn order_of<T: Element>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| {
        let nan = |x: T| x.to_f64().is_nan();
        nan(a).cmp(&nan(b))
    })
}

/// The start of each line along an axis, in row-major order.
fn starts(shape: &Shape, axis: usize) -> impl Iterator<Item = usize> {
    let inner: usize = shape[axis + 1..].iter().product();
    let (outer, dim) = (shape[..axis].iter().product::<usize>(), shape[axis]);
    (0..outer).flat_map(move |block| (0..inner).map(move |column| block * dim * inner + column))
}

/// How windows move over three spatial axes.
pub(crate) struct Walk {
    pub(crate) kernel: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) padding: [usize; 3],
    pub(crate) dilation: [usize; 3],
}

/// The maximum of each window and its position, for which Burn has kernels only for floats; `None` if a window contains
/// no element. `input` and `out` are the shapes `[N, C, three spatial axes]`.
pub(crate) fn max_pool(
    x: &BurnTensor,
    input: &Shape,
    out: &Shape,
    walk: &Walk,
) -> Result<Option<(BurnTensor, BurnTensor)>> {
    stored!(x.dtype(), T => {
        let Some(all) = x.values::<T>() else {
            return Err(refused("max_pool", x.dtype()));
        };
        let plane: usize = input[2..].iter().product();
        let (mut values, mut places) = (Vec::with_capacity(out.numel()), Vec::with_capacity(out.numel()));
        for plane in all.chunks_exact(plane) {
            for window in 0..out[2..].iter().product() {
                let at = [window / (out[3] * out[4]), window / out[4] % out[3], window % out[4]];
                let best = seen(input, walk, at).fold(None, |best: Option<usize>, place| match best {
                    Some(best) if plane[place] <= plane[best] => Some(best),
                    _ => Some(place),
                });
                let Some(best) = best else {
                    return Ok(None);
                };
                values.push(plane[best]);
                places.push(best as i64);
            }
        }
        Ok(Some((BurnTensor::from_values(*out, values), BurnTensor::from_values(*out, places))))
    })
}

/// The positions inside the input that one window covers.
fn seen<'a>(input: &'a Shape, walk: &'a Walk, window: [usize; 3]) -> impl Iterator<Item = usize> + 'a {
    let along = move |axis: usize| {
        (0..walk.kernel[axis]).filter_map(move |k| {
            let place = (window[axis] * walk.stride[axis] + k * walk.dilation[axis]).checked_sub(walk.padding[axis])?;
            (place < input[axis + 2]).then_some(place)
        })
    };
    along(0).flat_map(move |d| along(1).flat_map(move |h| along(2).map(move |w| (d * input[3] + h) * input[4] + w)))
}
