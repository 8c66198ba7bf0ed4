//! Indexing.

use polygrad_core::compute::{Gather, Kernel, Scatter};
use polygrad_core::{Backend, DType, Result, SliceRange};
use polygrad_reference::Reference;

use crate::array::Array;
use crate::elementwise::refused;
use crate::host::one_on_host;
use crate::movement::{copy, expand, reshape, slice};

pub(crate) fn gather(x: &Array, axis: usize, index: &Array) -> Result<Array> {
    if index.shape().numel() == 0 {
        return Array::empty(x.context(), *index.shape(), x.dtype());
    }
    if !x.context().driver.supports(Kernel::Gather, x.dtype()) {
        return one_on_host(x.context(), &[x, index], |x| Reference::gather(&x[0], axis, &x[1]));
    }
    let out = Array::empty(x.context(), *index.shape(), x.dtype())?;
    let call = Gather {
        input: x.view()?,
        axis,
        index: index.view()?,
        output: out.start()?,
    };
    x.context().launch("gather", |driver| driver.gather(&call))?;
    Ok(out)
}

/// Whether a scatter writes or adds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Add,
}

pub(crate) fn scatter(mode: Mode, x: &Array, axis: usize, index: &Array, src: &Array) -> Result<Array> {
    if mode == Mode::Add && x.dtype() == DType::Bool {
        return Err(refused("scatter_add", x.dtype()));
    }
    if index.shape().numel() == 0 {
        return Ok(x.clone());
    }
    let kernel = match mode {
        Mode::Write => Kernel::Scatter,
        Mode::Add => Kernel::ScatterAdd,
    };
    if !x.context().driver.supports(kernel, x.dtype()) {
        return one_on_host(x.context(), &[x, index, src], |x| match mode {
            Mode::Write => Reference::scatter(&x[0], axis, &x[1], &x[2]),
            Mode::Add => Reference::scatter_add(&x[0], axis, &x[1], &x[2]),
        });
    }
    let taken: Vec<_> = index
        .shape()
        .dims()
        .iter()
        .map(|&dim| SliceRange::new(0, dim, 1))
        .collect();
    let source = slice(src, &taken);
    let out = copy(x)?;
    let call = Scatter {
        target: out.view()?,
        axis,
        index: index.view()?,
        source: source.view()?,
    };
    x.context().launch(kernel.name(), |driver| match mode {
        Mode::Write => driver.scatter(&call),
        Mode::Add => driver.scatter_add(&call),
    })?;
    Ok(out)
}

/// Expands one index per slice to one per element, as a view.
fn widened(x: &Array, axis: usize, index: &Array) -> Result<Array> {
    let shape = x.shape().with_dim(axis, index.shape()[0]);
    let mut column = shape;
    for (i, dim) in column.dims_mut().iter_mut().enumerate() {
        if i != axis {
            *dim = 1;
        }
    }
    Ok(expand(&reshape(index, column)?, shape))
}

pub(crate) fn index_select(x: &Array, axis: usize, index: &Array) -> Result<Array> {
    gather(x, axis, &widened(x, axis, index)?)
}

pub(crate) fn index_add(x: &Array, axis: usize, index: &Array, src: &Array) -> Result<Array> {
    scatter(Mode::Add, x, axis, &widened(x, axis, index)?, src)
}
