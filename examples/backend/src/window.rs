//! Convolution and pooling, on a view that shows every window of a padded input.

use std::cmp::Ordering;

use polygrad::backend::{ConvParams, Element, Error, Layout, PoolParams, Result, Scalar, Shape, collect, room};

use crate::matmul::matmul;
use crate::movement::{pad, reshape};
use crate::reduce::replaces;
use crate::support::typed;
use crate::tensor::ToyTensor;
use crate::total::Total;

/// A position in the padding of the input.
const BORDER: i64 = -1;
/// A position beyond the padding, reached by windows in ceil mode.
const BEYOND: i64 = -2;

/// The geometry of windows over the spatial axes.
struct Walk<'a> {
    /// Size of the windows, and their number, for each spatial axis.
    kernel: &'a [usize],
    count: &'a [usize],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
}

impl Walk<'_> {
    /// `x [N, C, spatial…]` with its padding, and after it everything that windows still reach.
    fn padded(&self, x: &ToyTensor, border: Scalar, beyond: Scalar) -> Result<ToyTensor> {
        let (mut around, mut behind) = (vec![(0, 0); 2], vec![(0, 0); 2]);
        for (axis, &dim) in x.shape()[2..].iter().enumerate() {
            let reach = (self.count[axis] - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1;
            around.push((self.padding[axis], self.padding[axis]));
            behind.push((0, reach.saturating_sub(dim + 2 * self.padding[axis])));
        }
        pad(&pad(x, &around, border)?, &behind, beyond)
    }

    /// A view of a padded input: `[N, C, kernel…, count…]`, or with `count` first. Its elements overlap, and
    /// nothing is copied yet.
    fn windows(&self, x: &ToyTensor, count_first: bool) -> Result<ToyTensor> {
        let (shape, strides) = (x.shape(), x.layout().strides());
        let step = |axis: usize, by: usize| strides[axis + 2] * by as isize;
        let inside = self
            .kernel
            .iter()
            .enumerate()
            .map(|(axis, &dim)| (dim, step(axis, self.dilation[axis])));
        let across = self
            .count
            .iter()
            .enumerate()
            .map(|(axis, &dim)| (dim, step(axis, self.stride[axis])));
        let mut axes = vec![(shape[0], strides[0]), (shape[1], strides[1])];
        if count_first {
            axes.extend(across.chain(inside));
        } else {
            axes.extend(inside.chain(across));
        }
        let (dims, strides): (Vec<usize>, Vec<isize>) = axes.into_iter().unzip();
        let layout = Layout::strided(Shape::new(&dims)?, &strides, x.layout().offset());
        Ok(x.view(layout))
    }
}

/// The windows' patches as columns of a matrix, multiplied by the filters:
/// `[O / g, C / g · kernel] × [C / g · kernel, count]`.
pub(crate) fn conv(x: &ToyTensor, weight: &ToyTensor, params: &ConvParams) -> Result<ToyTensor> {
    let shape = params.output_shape(x.shape(), weight.shape())?;
    if shape.numel() == 0 || weight.shape().numel() == 0 {
        return ToyTensor::full(shape, Scalar::Float(0.0), x.dtype());
    }
    let walk = Walk {
        kernel: &weight.shape()[2..],
        count: &shape[2..],
        stride: params.stride,
        padding: params.padding,
        dilation: params.dilation,
    };
    let zero = Scalar::Float(0.0);
    let (groups, terms) = (params.groups, weight.shape()[1..].iter().product());
    let patches = walk.windows(&walk.padded(x, zero, zero)?, false)?;
    let patches = reshape(
        &patches,
        Shape::from([shape[0], groups, terms, shape[2..].iter().product()]),
    )?;
    let filters = reshape(weight, Shape::from([1, groups, shape[1] / groups, terms]))?;
    reshape(&matmul(&filters, &patches)?, shape)
}

/// Calls `f` for each window, with its values and their positions in the flattened spatial axes of the input.
fn pool<T: Element, R>(x: &ToyTensor, params: &PoolParams, f: impl Fn(&[T], &[i64]) -> Result<R>) -> Result<Vec<R>> {
    let shape = params.output_shape(x.shape())?;
    let mut out = room(shape.numel())?;
    if shape.numel() == 0 {
        return Ok(out);
    }
    let spatial = &x.shape()[2..];
    let walk = Walk {
        kernel: &params.kernel[..spatial.len()],
        count: &shape[2..],
        stride: params.stride,
        padding: params.padding,
        dilation: params.dilation,
    };
    let zero = Scalar::Int(0);
    let values = walk.windows(&walk.padded(x, zero, zero)?, true)?;
    let plane: usize = spatial.iter().product();
    let positions = collect((0..plane).map(|i| i as i64))?;
    let positions = ToyTensor::new(Shape::new(&[&[1, 1], spatial].concat())?, positions);
    let positions = walk.windows(
        &walk.padded(&positions, Scalar::Int(BORDER), Scalar::Int(BEYOND))?,
        true,
    )?;
    let (values, positions) = (values.values::<T>()?, positions.values::<i64>()?);
    let len = walk.kernel.iter().product();
    // All planes have the same positions.
    let positions = positions.chunks_exact(len).cycle();
    for (values, positions) in values.chunks_exact(len).zip(positions) {
        out.push(f(values, positions)?);
    }
    Ok(out)
}

fn sees_nothing(op: &'static str) -> Error {
    let error = Error::invalid("a window lies wholly in the border").with_op(op);
    error.with_hint("use less padding or dilation")
}

/// The largest value of each window and its position.
pub(crate) fn max_pool(x: &ToyTensor, params: &PoolParams) -> Result<(ToyTensor, ToyTensor)> {
    fn largest<T: Element>(values: &[T], positions: &[i64]) -> Result<(T, i64)> {
        let inside = values
            .iter()
            .copied()
            .zip(positions.iter().copied())
            .filter(|&(_, position)| position >= 0);
        let larger = |best: (T, i64), other: (T, i64)| {
            if replaces(other.0, best.0, Ordering::Greater) {
                other
            } else {
                best
            }
        };
        inside.reduce(larger).ok_or_else(|| sees_nothing("max_pool"))
    }
    let shape = params.output_shape(x.shape())?;
    typed!("max_pool", x.dtype(), [f32 f64 i64], T => {
        let (values, positions): (Vec<T>, Vec<i64>) = pool(x, params, largest::<T>)?.into_iter().unzip();
        Ok((ToyTensor::new(shape, values), ToyTensor::new(shape, positions)))
    })
}

/// The mean of each window. The padding counts as zeros if requested; anything beyond it never counts.
pub(crate) fn avg_pool(x: &ToyTensor, params: &PoolParams) -> Result<ToyTensor> {
    fn mean<T: Element>(values: &[T], positions: &[i64], last: i64) -> Result<T> {
        let inside = values
            .iter()
            .zip(positions)
            .filter(|(_, position)| **position >= 0)
            .map(|(&value, _)| value);
        match positions.iter().filter(|position| **position >= last).count() {
            0 => Err(sees_nothing("avg_pool")),
            count => Ok(T::from_f64(Total::of(inside).real() / count as f64)),
        }
    }
    let last = if params.count_include_pad { BORDER } else { 0 };
    let shape = params.output_shape(x.shape())?;
    typed!("avg_pool", x.dtype(), [f32 f64], T => {
        Ok(ToyTensor::new(shape, pool(x, params, |values: &[T], positions| mean(values, positions, last))?))
    })
}
