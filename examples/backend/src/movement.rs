//! Ops that move elements without computing. Views change only the layout.

use polygrad::backend::{Axes, Element, Error, Result, Scalar, Shape, SliceRange, room};

use crate::support::typed;
use crate::tensor::ToyTensor;

pub(crate) fn reshape(x: &ToyTensor, shape: Shape) -> Result<ToyTensor> {
    if let Some(layout) = x.layout().reshape(shape) {
        return Ok(x.view(layout));
    }
    typed!("reshape", x.dtype(), [f32 f64 i64 bool], T => Ok(ToyTensor::new(shape, x.values::<T>()?.into_owned())))
}

pub(crate) fn permute(x: &ToyTensor, axes: Axes) -> ToyTensor {
    x.view(x.layout().permute(axes))
}

pub(crate) fn expand(x: &ToyTensor, shape: Shape) -> ToyTensor {
    x.view(x.layout().expand(shape))
}

pub(crate) fn slice(x: &ToyTensor, ranges: &[SliceRange]) -> ToyTensor {
    x.view(x.layout().slice(ranges))
}

/// Pads one axis after another, by joining it with the padding before and after it.
pub(crate) fn pad(x: &ToyTensor, padding: &[(usize, usize)], value: Scalar) -> Result<ToyTensor> {
    let padded = x.shape().iter().zip(padding);
    let dims: Vec<usize> = padded
        .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after))
        .collect();
    // Fails before anything is allocated.
    Shape::new(&dims)?;
    let mut out = x.clone();
    for (axis, &(before, after)) in padding.iter().enumerate() {
        if before + after > 0 {
            let border = |dim| ToyTensor::full(out.shape().with_dim(axis, dim), value, x.dtype());
            out = concat(&[&border(before)?, &out, &border(after)?], axis)?;
        }
    }
    Ok(out)
}

pub(crate) fn concat(xs: &[&ToyTensor], axis: usize) -> Result<ToyTensor> {
    fn of<T: Element>(xs: &[&ToyTensor], axis: usize, shape: Shape) -> Result<ToyTensor> {
        let parts = xs.iter().map(|x| x.values::<T>()).collect::<Result<Vec<_>>>()?;
        let mut out = room(shape.numel())?;
        for outer in 0..shape[..axis].iter().product() {
            for (x, part) in xs.iter().zip(&parts) {
                let block = x.shape()[axis..].iter().product::<usize>();
                out.extend_from_slice(&part[outer * block..(outer + 1) * block]);
            }
        }
        Ok(ToyTensor::new(shape, out))
    }
    let Some(first) = xs.first() else {
        return Err(Error::invalid("there is nothing to join").with_op("cat"));
    };
    let dim = xs.iter().map(|x| x.shape()[axis]).sum();
    let shape = Shape::new(&first.shape().with_dim(axis, dim))?;
    typed!("cat", first.dtype(), [f32 f64 i64 bool], T => of::<T>(xs, axis, shape))
}
