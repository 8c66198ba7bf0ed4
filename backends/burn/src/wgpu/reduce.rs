//! Reductions, running sums and sorting.

use std::cmp::Ordering;

use burn_backend::IntDType;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_wgpu::{CubeBackend, CubeTensor};
use polygrad_core::{ArgOp, Axes, BinaryOp, DType, Element, HostTensor, ReduceOp, Result, Scalar, Shape, SliceRange};

use crate::wgpu::elementwise::binary_scalar;
use crate::wgpu::host::{from_host, to_host};
use crate::wgpu::movement::{concat, reshape, slice};
use crate::wgpu::support::{refused, unknown};
use crate::wgpu::tensor::{BurnWgpuTensor as T, ensure_room};

pub(crate) fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
    let (dtype, shape) = (x.dtype(), x.shape());
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype, x.device()));
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let out = shape.reduced(axes, keepdims);
    if x.is_empty() {
        let value = i64::from(matches!(op, ReduceOp::Prod | ReduceOp::All));
        return T::full(out, Scalar::Int(value), dtype, x.device());
    }
    let mut result = x.clone();
    // Adjacent axes are merged, from the last to the first.
    let mut end = shape.rank();
    while end > 0 {
        if !axes.contains(end - 1) {
            end -= 1;
            continue;
        }
        let mut start = end - 1;
        while start > 0 && axes.contains(start - 1) {
            start -= 1;
        }
        let mut dims = result.shape();
        let outer = dims[..start].iter().product();
        let inner = dims[end..].iter().product();
        let count = dims[start..end].iter().product();
        // A reduction of one element is that element; Burn's kernel would read past the end of one that is broadcast.
        if count != 1 {
            let folded = reshape(&result, Shape::from([outer, count, inner]));
            dims.dims_mut()[start..end].fill(1);
            result = reshape(&along_parts(op, folded)?, dims);
        }
        end = start;
    }
    if op == ReduceOp::Mean {
        let count: usize = axes.iter().map(|axis| shape[axis]).product();
        result = binary_scalar(BinaryOp::Div, &result, Scalar::Float(count as f64), false)?;
    }
    Ok(reshape(&result, out))
}

/// The most terms that Burn's kernel may sum at once: only a few invocations share an axis, and a long sum would lose
/// precision.
const PART: usize = 1 << 10;

/// Reduces the middle of three axes, in parts if it is long.
fn along_parts(op: ReduceOp, mut x: T) -> Result<T> {
    loop {
        let [outer, count, inner] = [x.shape()[0], x.shape()[1], x.shape()[2]];
        if count <= PART {
            return along(op, &x);
        }
        let (parts, rest) = (count / PART, count % PART);
        let stretch = |start: usize, len: usize| {
            let all = SliceRange::full;
            slice(&x, &[all(outer), SliceRange::new(start, len, 1), all(inner)])
        };
        let whole = reshape(&stretch(0, count - rest)?, Shape::from([outer * parts, PART, inner]));
        let mut next = reshape(&along(op, &whole)?, Shape::from([outer, parts, inner]));
        if rest > 0 {
            let last = match rest {
                1 => stretch(count - 1, 1)?,
                _ => along(op, &stretch(count - rest, rest)?)?,
            };
            next = concat(&[&next, &last], 1)?;
        }
        x = next;
    }
}

/// Reduces the middle of three axes.
fn along(op: ReduceOp, x: &T) -> Result<T> {
    let dtype = x.dtype();
    let out = x.shape().with_dim(1, 1);
    let truth = dtype == DType::Bool;
    let f: fn(CubeTensor, usize) -> CubeTensor = match (op, dtype.is_float()) {
        (ReduceOp::Sum | ReduceOp::Mean, true) => CubeBackend::float_sum_dim,
        (ReduceOp::Sum, false) => CubeBackend::int_sum_dim,
        (ReduceOp::Prod, true) => CubeBackend::float_prod_dim,
        (ReduceOp::Prod, false) => CubeBackend::int_prod_dim,
        (ReduceOp::Any, _) => CubeBackend::bool_any_dim,
        (ReduceOp::All, _) => CubeBackend::bool_all_dim,
        (ReduceOp::Max, true) => CubeBackend::float_max_dim,
        (ReduceOp::Min, true) => CubeBackend::float_min_dim,
        (ReduceOp::Max, false) if truth => CubeBackend::bool_any_dim,
        (ReduceOp::Min, false) if truth => CubeBackend::bool_all_dim,
        (ReduceOp::Max, false) => CubeBackend::int_max_dim,
        (ReduceOp::Min, false) => CubeBackend::int_min_dim,
        _ => return Err(unknown(op.name(), x.device())),
    };
    let operand = if truth { x.truths() } else { x.operand() };
    Ok(x.like(f(operand, 1), out, dtype))
}

/// The longest axis for Burn's kernels, which ignore elements beyond 65,536.
const LONGEST: usize = 1 << 15;

pub(crate) fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
    let out = x.shape().reduced(Axes::one(axis), keepdims);
    if out.numel() == 0 {
        return x.zeros(out, DType::I64);
    }
    if x.shape()[axis] > LONGEST {
        return Ok(reshape(&arg_on_host(op, x, axis)?, out));
    }
    let operand = x.operand();
    let found = match (op, x.dtype().is_float()) {
        (ArgOp::Max, true) => CubeBackend::float_argmax(operand, axis, IntDType::I64),
        (ArgOp::Min, true) => CubeBackend::float_argmin(operand, axis, IntDType::I64),
        (ArgOp::Max, false) => CubeBackend::int_argmax(operand, axis),
        (ArgOp::Min, false) => CubeBackend::int_argmin(operand, axis),
        _ => return Err(unknown(op.name(), x.device())),
    };
    let found = burn_cubecl::kernel::cast(found, burn_backend::DType::I64);
    Ok(reshape(&x.like(found, x.shape().with_dim(axis, 1), DType::I64), out))
}

/// For an axis that is too long for Burn's kernel.
fn arg_on_host(op: ArgOp, x: &T, axis: usize) -> Result<T> {
    let host = to_host(x)?;
    let largest = match op {
        ArgOp::Max => true,
        ArgOp::Min => false,
        _ => return Err(unknown(op.name(), x.device())),
    };
    let found = match x.dtype() {
        DType::F32 => extremes::<f32>(largest, &host, axis)?,
        DType::I64 => extremes::<i64>(largest, &host, axis)?,
        DType::I32 => extremes::<i32>(largest, &host, axis)?,
        DType::Bool => extremes::<bool>(largest, &host, axis)?,
        other => return Err(refused(op.name(), other, x.device())),
    };
    from_host(&found, x.device())
}

/// The position of the first extreme along an axis, or of the first NaN, if there is one.
fn extremes<E: Element>(largest: bool, host: &HostTensor, axis: usize) -> Result<HostTensor> {
    let (shape, values) = (*host.shape(), host.as_slice::<E>()?);
    let (dim, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let nan = |x: E| x.to_f64().is_nan();
    let beyond = |x: E, best: E| nan(x) || if largest { x > best } else { x < best };
    let found = (0..values.len() / dim).map(|line| {
        let start = line / inner * dim * inner + line % inner;
        let at = |i: usize| values[start + i * inner];
        let best = (1..dim).fold(0, |best, i| {
            if !nan(at(best)) && beyond(at(i), at(best)) {
                i
            } else {
                best
            }
        });
        best as i64
    });
    HostTensor::new(shape.with_dim(axis, 1), found.collect())
}

pub(crate) fn cumsum(x: &T, axis: usize) -> Result<T> {
    let (shape, dtype) = (x.shape(), x.dtype());
    if dtype == DType::Bool {
        return Err(refused("cumsum", dtype, x.device()));
    }
    if x.is_empty() {
        return Ok(x.clone());
    }
    ensure_room(&shape, dtype, x.device())?;
    if shape[axis] > LONGEST {
        return cumsum_on_host(x, axis);
    }
    let sums = if dtype.is_float() {
        CubeBackend::float_cumsum(x.operand(), axis)
    } else {
        CubeBackend::int_cumsum(x.operand(), axis)
    };
    Ok(x.like(sums, shape, dtype))
}

/// For an axis that is too long for Burn's kernel.
fn cumsum_on_host(x: &T, axis: usize) -> Result<T> {
    let host = to_host(x)?;
    let sums = match x.dtype() {
        DType::F32 => running::<f32, f64>(&host, axis, Element::to_f64, |sum| sum as f32, |a, b| a + b)?,
        DType::I64 => running::<i64, i64>(&host, axis, |x| x, |sum| sum, i64::wrapping_add)?,
        DType::I32 => running::<i32, i32>(&host, axis, |x| x, |sum| sum, i32::wrapping_add)?,
        other => return Err(refused("cumsum", other, x.device())),
    };
    from_host(&sums, x.device())
}

/// Running sums along an axis, accumulated in `S`.
fn running<E: Element, S: Copy>(
    host: &HostTensor,
    axis: usize,
    widen: fn(E) -> S,
    narrow: fn(S) -> E,
    add: fn(S, S) -> S,
) -> Result<HostTensor> {
    let (shape, mut sums) = (*host.shape(), host.as_slice::<E>()?.to_vec());
    let (dim, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    for line in 0..sums.len() / dim {
        let start = line / inner * dim * inner + line % inner;
        let mut sum = widen(sums[start]);
        for i in 1..dim {
            let at = start + i * inner;
            sum = add(sum, widen(sums[at]));
            sums[at] = narrow(sum);
        }
    }
    HostTensor::new(shape, sums)
}

/// Sorts on the host, as Burn does, whose wgpu devices have no kernel for it, and whose order is not stable.
pub(crate) fn sort(x: &T, axis: usize, descending: bool) -> Result<(T, T)> {
    let host = to_host(x)?;
    let (values, order) = match x.dtype() {
        DType::F32 => sorted::<f32>(&host, axis, descending)?,
        DType::I64 => sorted::<i64>(&host, axis, descending)?,
        DType::I32 => sorted::<i32>(&host, axis, descending)?,
        DType::Bool => sorted::<bool>(&host, axis, descending)?,
        other => return Err(refused("sort", other, x.device())),
    };
    Ok((from_host(&values, x.device())?, from_host(&order, x.device())?))
}

fn sorted<E: Element>(host: &HostTensor, axis: usize, descending: bool) -> Result<(HostTensor, HostTensor)> {
    let (shape, values) = (*host.shape(), host.as_slice::<E>()?);
    let (dim, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let (mut sorted, mut order) = (values.to_vec(), vec![0i64; values.len()]);
    let lines = values.len().checked_div(dim).unwrap_or(0);
    for line in 0..lines {
        let start = line / inner * dim * inner + line % inner;
        let at = |i: usize| values[start + i * inner];
        let mut places: Vec<usize> = (0..dim).collect();
        if descending {
            places.sort_by(|&a, &b| order_of(at(b), at(a)));
        } else {
            places.sort_by(|&a, &b| order_of(at(a), at(b)));
        }
        for (to, &from) in places.iter().enumerate() {
            sorted[start + to * inner] = at(from);
            order[start + to * inner] = from as i64;
        }
    }
    Ok((HostTensor::new(shape, sorted)?, HostTensor::new(shape, order)?))
}

/// By value, with NaN as the largest; zeros of either sign are equal.
fn order_of<E: Element>(a: E, b: E) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| {
        let nan = |x: E| x.to_f64().is_nan();
        nan(a).cmp(&nan(b))
    })
}
