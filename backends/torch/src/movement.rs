//! Views, and ops that move elements.

use polygrad_core::{Axes, Layout, Result, Scalar, Shape, SliceRange};
use tch::Tensor;

use crate::error::Named;
use crate::ffi;
use crate::tensor::TorchTensor;

pub(crate) fn reshape(x: &TorchTensor, shape: Shape) -> Result<TorchTensor> {
    match x.layout().reshape(shape) {
        Some(layout) => x.view(layout),
        None => {
            let copy = x.contiguous()?;
            copy.view(Layout::contiguous(shape))
        }
    }
}

pub(crate) fn permute(x: &TorchTensor, axes: Axes) -> Result<TorchTensor> {
    x.view(x.layout().permute(axes))
}

pub(crate) fn expand(x: &TorchTensor, shape: Shape) -> Result<TorchTensor> {
    x.view(x.layout().expand(shape))
}

/// Slices a tensor. LibTorch has no negative strides, so axes with one are flipped after slicing.
pub(crate) fn slice(x: &TorchTensor, ranges: &[SliceRange]) -> Result<TorchTensor> {
    let backwards: Vec<i64> = ranges
        .iter()
        .enumerate()
        .filter(|(_, range)| range.step < 0 && range.len > 1)
        .map(|(axis, _)| axis as i64)
        .collect();
    // The same elements in ascending order.
    let forwards: Vec<SliceRange> = ranges
        .iter()
        .map(|range| match (range.len, range.step) {
            (0 | 1, _) => SliceRange::new(range.start, range.len, 1),
            (_, 1..) => *range,
            (len, step) => {
                let first = range.start.wrapping_add_signed((len as isize - 1) * step);
                SliceRange::new(first, len, -step)
            }
        })
        .collect();
    let cut = x.view(x.layout().slice(&forwards))?;
    if backwards.is_empty() {
        return Ok(cut);
    }
    cut.wrap("slice", cut.raw().f_flip(&backwards[..]))
}

pub(crate) fn pad(x: &TorchTensor, padding: &[(usize, usize)], value: Scalar) -> Result<TorchTensor> {
    let mut dims = x.shape().to_vec();
    let mut ranges = Vec::with_capacity(dims.len());
    for (dim, &(before, after)) in dims.iter_mut().zip(padding) {
        ranges.push(SliceRange::new(before, *dim, 1));
        *dim = dim.saturating_add(before).saturating_add(after);
    }
    let out = TorchTensor::full(Shape::new(&dims)?, value, x.dtype(), x.device())?;
    let inner = out.layout().slice(&ranges);
    let mut inner = ffi::view(out.raw(), inner.shape(), inner.strides(), inner.offset())?;
    inner.f_copy_(x.raw()).named("pad")?;
    Ok(out)
}

pub(crate) fn concat(xs: &[&TorchTensor], axis: usize) -> Result<TorchTensor> {
    let tensors: Vec<&Tensor> = xs.iter().map(|x| x.raw()).collect();
    xs[0].wrap("cat", Tensor::f_cat(&tensors, axis as i64))
}
