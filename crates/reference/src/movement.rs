//! Ops that move elements without changing them. Views are copies here.

use polygrad_core::{Axes, Error, Result, Scalar, Shape, SliceRange};

use crate::number;
use crate::positions::{broadcast_position, coordinates, position};
use crate::tensor::{ReferenceTensor, Values, collect};

pub(crate) fn permute(x: &ReferenceTensor, axes: Axes) -> Result<ReferenceTensor> {
    let mut shape = *x.shape();
    if axes.len() != shape.rank() || axes.iter().any(|axis| axis >= shape.rank()) {
        return Err(Error::invalid(format!("{axes:?} do not reorder the axes of {shape}")).with_op("permute"));
    }
    for (to, from) in axes.iter().enumerate() {
        shape.dims_mut()[to] = x.shape()[from];
    }
    x.pick(shape, |at| {
        let mut source = at.to_vec();
        for (to, from) in axes.iter().enumerate() {
            source[from] = at[to];
        }
        Ok(position(&source, x.shape()))
    })
}

pub(crate) fn expand(x: &ReferenceTensor, shape: Shape) -> Result<ReferenceTensor> {
    if !x.shape().broadcasts_to(&shape) {
        return Err(Error::shape(format!("{} does not broadcast to {shape}", x.shape())).with_op("expand"));
    }
    x.pick(shape, |at| Ok(broadcast_position(at, x.shape())))
}

pub(crate) fn slice(x: &ReferenceTensor, ranges: &[SliceRange]) -> Result<ReferenceTensor> {
    let mut shape = *x.shape();
    if ranges.len() != shape.rank() || ranges.iter().zip(shape.iter()).any(|(range, &dim)| !range.fits(dim)) {
        return Err(Error::out_of_range(format!("{ranges:?} do not fit shape {shape}")).with_op("slice"));
    }
    for (dim, range) in shape.dims_mut().iter_mut().zip(ranges) {
        *dim = range.len;
    }
    x.pick(shape, |at| {
        let source: Vec<usize> = at
            .iter()
            .zip(ranges)
            .map(|(&i, range)| range.start.wrapping_add_signed(i as isize * range.step))
            .collect();
        Ok(position(&source, x.shape()))
    })
}

pub(crate) fn pad(x: &ReferenceTensor, padding: &[(usize, usize)], value: Scalar) -> Result<ReferenceTensor> {
    if padding.len() != x.shape().rank() {
        return Err(Error::invalid(format!("{} borders for shape {}", padding.len(), x.shape())).with_op("pad"));
    }
    let dims: Vec<usize> = x
        .shape()
        .iter()
        .zip(padding)
        .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after))
        .collect();
    let shape = Shape::new(&dims).map_err(|e| e.with_op("pad"))?;
    let source = |i| {
        let at = coordinates(i, &shape);
        let inner: Option<Vec<usize>> = at
            .iter()
            .zip(padding)
            .zip(x.shape().iter())
            .map(|((&i, &(before, _)), &dim)| i.checked_sub(before).filter(|&i| i < dim))
            .collect();
        inner.map(|at| position(&at, x.shape()))
    };
    let (count, dtype) = (shape.numel(), x.dtype());
    Ok(match x.values() {
        Values::Real(x) => {
            let value = number::real(value, dtype);
            ReferenceTensor::real(
                shape,
                dtype,
                collect(count, |i| Ok(source(i).map_or(value, |at| x[at])))?,
            )
        }
        Values::Int(x) => {
            let value = number::int(value, dtype);
            ReferenceTensor::int(
                shape,
                dtype,
                collect(count, |i| Ok(source(i).map_or(value, |at| x[at])))?,
            )
        }
    })
}

pub(crate) fn concat(xs: &[&ReferenceTensor], axis: usize) -> Result<ReferenceTensor> {
    let Some(first) = xs.first() else {
        return Err(Error::invalid("nothing to join").with_op("cat"));
    };
    let dims = xs.iter().map(|x| x.shape()[axis]).sum();
    let shape = Shape::new(first.shape().with_dim(axis, dims).dims()).map_err(|e| e.with_op("cat"))?;
    if let Some(odd) = xs
        .iter()
        .find(|x| x.dtype() != first.dtype() || x.shape().with_dim(axis, 0) != first.shape().with_dim(axis, 0))
    {
        return Err(
            Error::shape("tensors that differ in dtype, or in an axis that is not joined")
                .with_op("cat")
                .with_operands([(*first.shape(), first.dtype()), (*odd.shape(), odd.dtype())]),
        );
    }
    // The tensor that an element comes from, and its position there.
    let source = |i| {
        let mut at = coordinates(i, &shape);
        let mut which = 0;
        while at[axis] >= xs[which].shape()[axis] {
            at[axis] -= xs[which].shape()[axis];
            which += 1;
        }
        (xs[which], position(&at, xs[which].shape()))
    };
    ReferenceTensor::from_scalars(shape, first.dtype(), |i| {
        let (x, at) = source(i);
        match x.values() {
            Values::Real(x) => x[at].into(),
            Values::Int(x) => x[at].into(),
        }
    })
}
