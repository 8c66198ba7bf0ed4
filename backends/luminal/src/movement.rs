//! Ops that move elements without reading their values. Views change only the layout.

use polygrad_core::{Axes, DType, Element, Error, Result, Scalar, Shape, SliceRange, room};

use crate::kernel::{self, Kernel};
use crate::support::typed;
use crate::tensor::{LuminalTensor, Recorded};
use crate::values::{Item, View};

/// The most inputs of a node: luminal counts them in 8 bits.
const MAX_INPUTS: usize = 200;

/// A row-major copy, by a custom node: luminal's own op supports fewer layouts, and computes each element's place by
/// interpreting an expression.
pub(crate) fn contiguous(x: &LuminalTensor) -> Result<LuminalTensor> {
    typed!("contiguous", x.dtype(), T => {
        kernel::record("contiguous", [x], *x.shape(), T::DTYPE, |[x]| Ok(T::tensor(x.values::<T>()?.into_owned())))
    })
}

pub(crate) fn reshape(x: &LuminalTensor, shape: Shape) -> Result<LuminalTensor> {
    match x.layout().reshape(shape) {
        Some(layout) => Ok(x.view(layout)),
        None => {
            let copy = contiguous(x)?;
            Ok(copy.view(polygrad_core::Layout::contiguous(shape)))
        }
    }
}

pub(crate) fn permute(x: &LuminalTensor, axes: Axes) -> LuminalTensor {
    x.view(x.layout().permute(axes))
}

pub(crate) fn expand(x: &LuminalTensor, shape: Shape) -> LuminalTensor {
    x.view(x.layout().expand(shape))
}

pub(crate) fn slice(x: &LuminalTensor, ranges: &[SliceRange]) -> LuminalTensor {
    x.view(x.layout().slice(ranges))
}

/// The shape with a border, or an error if it has too many elements.
pub(crate) fn padded_shape(shape: &Shape, padding: &[(usize, usize)]) -> Result<Shape> {
    let padded = shape.iter().zip(padding);
    let dims: Vec<usize> = padded
        .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after))
        .collect();
    Shape::new(&dims)
}

/// The elements with a border around them.
pub(crate) fn padded<T: Item>(x: &View<'_>, padding: &[(usize, usize)], value: T) -> Result<Vec<T>> {
    let shape = padded_shape(x.shape(), padding)?;
    let mut out = room(shape.numel())?;
    out.resize(shape.numel(), value);
    let inside: Vec<SliceRange> = x
        .shape()
        .iter()
        .zip(padding)
        .map(|(&dim, &(before, _))| SliceRange::new(before, dim, 1))
        .collect();
    let target = polygrad_core::Layout::contiguous(shape).slice(&inside);
    let values = x.values::<T>()?;
    let mut at = 0;
    target.rows(|start, count, _| {
        out[start..start + count].copy_from_slice(&values[at..at + count]);
        at += count;
    });
    Ok(out)
}

pub(crate) fn pad(x: &LuminalTensor, padding: &[(usize, usize)], value: Scalar) -> Result<LuminalTensor> {
    let shape = padded_shape(x.shape(), padding)?;
    let padding = padding.to_vec();
    typed!("pad", x.dtype(), T => {
        let value = <T as Element>::from_scalar(value);
        kernel::record("pad", [x], shape, T::DTYPE, move |[x]| Ok(T::tensor(padded(&x, &padding, value)?)))
    })
}

pub(crate) fn concat(xs: &[&LuminalTensor], axis: usize) -> Result<LuminalTensor> {
    let Some(first) = xs.first() else {
        return Err(Error::invalid("there is nothing to join").with_op("cat"));
    };
    if xs.len() > MAX_INPUTS {
        let parts: Vec<LuminalTensor> = xs
            .chunks(MAX_INPUTS)
            .map(|part| concat(part, axis))
            .collect::<Result<_>>()?;
        return concat(&parts.iter().collect::<Vec<_>>(), axis);
    }
    let dim = xs.iter().fold(0usize, |sum, x| sum.saturating_add(x.shape()[axis]));
    let shape = Shape::new(&first.shape().with_dim(axis, dim))?;
    typed!("cat", first.dtype(), T => joined::<T>(xs, axis, shape, T::DTYPE))
}

fn joined<T: Item>(xs: &[&LuminalTensor], axis: usize, shape: Shape, dtype: DType) -> Result<LuminalTensor> {
    let kernel = Kernel::new("cat", move |xs| {
        let parts = xs.iter().map(View::values::<T>).collect::<Result<Vec<_>>>()?;
        let mut out = room(shape.numel())?;
        for outer in 0..shape[..axis].iter().product() {
            for (x, part) in xs.iter().zip(&parts) {
                let block = x.shape()[axis..].iter().product::<usize>();
                out.extend_from_slice(&part[outer * block..(outer + 1) * block]);
            }
        }
        Ok(vec![T::tensor(out)])
    });
    let inputs = xs.iter().map(|&x| x.clone()).collect();
    Ok(LuminalTensor::record(Recorded::Kernel(kernel), inputs, &[(shape, dtype)])?.remove(0))
}
