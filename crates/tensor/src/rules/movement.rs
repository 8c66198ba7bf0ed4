//! Gradient rules of ops that move elements.

use polygrad_core::{Backend, Result, SliceRange};
use smallvec::smallvec;

use super::{Context, Passed};
use crate::Tensor;
use crate::backward::InputGradients;

/// Zeros of input `i`'s shape, in the gradient's dtype.
fn zeros<B: Backend>(i: usize, c: &Context<'_, B>) -> Result<Tensor<B>> {
    Tensor::full(c.shape(i), 0.0, (&c.grad.device(), c.grad.dtype()))
}

#[inline(never)]
pub(super) fn slice<B: Backend>(ranges: &[SliceRange], c: &Context<'_, B>) -> Result<Passed<B>> {
    let shape = c.shape(0);
    let mut grad = c.grad.clone();
    let mut padding = vec![(0, 0); ranges.len()];
    for (axis, range) in ranges.iter().enumerate() {
        let dim = shape[axis];
        if range.is_full(dim) {
            continue;
        }
        match range.step {
            _ if range.len == 0 => padding[axis] = (0, dim),
            1 => padding[axis] = (range.start, dim - range.start - range.len),
            -1 => {
                grad = grad.flip(axis as isize)?;
                let first = range.start + 1 - range.len;
                padding[axis] = (first, dim - first - range.len);
            }
            step => {
                let device = grad.device();
                let (start, step) = (range.start as i64, step as i64);
                let index = Tensor::arange(start, start + step * range.len as i64, step, &device)?;
                let empty = grad.shape().with_dim(axis, dim);
                let empty = Tensor::full(empty, 0.0, (&device, grad.dtype()))?;
                grad = empty.index_add(axis as isize, &index, &grad)?;
            }
        }
    }
    let mut cut = (0..padding.len()).filter(|&axis| padding[axis] != (0, 0));
    match (cut.next(), cut.next()) {
        (None, _) => Passed::one(grad),
        (Some(axis), None) => Ok(Passed::Stretch {
            axis,
            start: padding[axis].0,
            gradient: grad,
        }),
        (Some(_), Some(_)) => Passed::one(grad.pad(&padding, 0.0)?),
    }
}

#[inline(never)]
pub(super) fn pad<B: Backend>(padding: &[(usize, usize)], c: &Context<'_, B>) -> Result<Passed<B>> {
    let ranges: Vec<_> = padding
        .iter()
        .zip(c.shape(0).dims())
        .map(|(&(before, _), &dim)| SliceRange::new(before, dim, 1))
        .collect();
    Passed::one(c.grad.slice(&ranges)?)
}

#[inline(never)]
pub(super) fn concat<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    let mut start = 0;
    let mut gradients = InputGradients::<B>::new();
    for (i, input) in c.call.inputs.iter().enumerate() {
        let len = input.shape[axis];
        gradients.push(c.when(i, || c.grad.narrow(axis as isize, start, len))?);
        start += len;
    }
    Ok(Passed::Inputs(gradients))
}

#[inline(never)]
pub(super) fn gather<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(zeros(0, c)?.scatter_add(axis as isize, &c.saved[0], &c.grad)?)
}

#[inline(never)]
pub(super) fn scatter<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    let index = &c.saved[0];
    let blank = Tensor::full(index.shape(), 0.0, (&c.grad.device(), c.grad.dtype()))?;
    Ok(Passed::Inputs(smallvec![
        c.when(0, || c.grad.scatter(axis as isize, index, &blank))?,
        None,
        c.when(2, || source(axis, c))?,
    ]))
}

#[inline(never)]
pub(super) fn scatter_add<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    Ok(Passed::Inputs(smallvec![
        Some(c.grad.clone()),
        None,
        c.when(2, || source(axis, c))?,
    ]))
}

/// The gradient of a scatter's source, which may be larger than the index.
fn source<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Tensor<B>> {
    let used = c.grad.gather(axis as isize, &c.saved[0])?;
    let (from, to) = (used.shape(), c.shape(2));
    if from == to {
        return Ok(used);
    }
    let padding: Vec<_> = from
        .iter()
        .zip(to.dims())
        .map(|(&dim, &full)| (0, full - dim))
        .collect();
    used.pad(&padding, 0.0)
}

#[inline(never)]
pub(super) fn index_select<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(zeros(0, c)?.index_add(axis as isize, &c.saved[0], &c.grad)?)
}

#[inline(never)]
pub(super) fn index_add<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    Ok(Passed::Inputs(smallvec![
        Some(c.grad.clone()),
        None,
        c.when(2, || c.grad.index_select(axis as isize, &c.saved[0]))?,
    ]))
}

#[inline(never)]
pub(super) fn sort<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(zeros(0, c)?.scatter_add(axis as isize, &c.saved[0], &c.grad)?)
}
