//! Ops with an index tensor.

use polygrad_core::{DType, Error, Result};

use crate::number::Sum;
use crate::positions::{coordinates, position};
use crate::support;
use crate::tensor::{ReferenceTensor, Values};

pub(crate) fn gather(x: &ReferenceTensor, axis: usize, index: &ReferenceTensor) -> Result<ReferenceTensor> {
    let chosen = Index::new("gather", index, x, axis)?;
    let shape = *index.shape();
    x.pick(shape, |at| {
        let mut source = at.to_vec();
        source[axis] = chosen.get(position(at, &shape))?;
        Ok(position(&source, x.shape()))
    })
}

pub(crate) fn index_select(x: &ReferenceTensor, axis: usize, index: &ReferenceTensor) -> Result<ReferenceTensor> {
    let chosen = Index::new("index_select", index, x, axis)?;
    x.pick(x.shape().with_dim(axis, index.shape().numel()), |at| {
        let mut source = at.to_vec();
        source[axis] = chosen.get(at[axis])?;
        Ok(position(&source, x.shape()))
    })
}

/// If several write to the same element, the last wins.
pub(crate) fn scatter(
    x: &ReferenceTensor,
    axis: usize,
    index: &ReferenceTensor,
    src: &ReferenceTensor,
) -> Result<ReferenceTensor> {
    let routes = routes("scatter", x, axis, index, src)?;
    match (x.values(), src.values()) {
        (Values::Real(x_values), Values::Real(src)) => {
            let mut out = x_values.clone();
            routes.into_iter().for_each(|(from, to)| out[to] = src[from]);
            Ok(ReferenceTensor::real(*x.shape(), x.dtype(), out))
        }
        (Values::Int(x_values), Values::Int(src)) => {
            let mut out = x_values.clone();
            routes.into_iter().for_each(|(from, to)| out[to] = src[from]);
            Ok(ReferenceTensor::int(*x.shape(), x.dtype(), out))
        }
        _ => Err(support::refused("scatter", src.dtype())),
    }
}

pub(crate) fn scatter_add(
    x: &ReferenceTensor,
    axis: usize,
    index: &ReferenceTensor,
    src: &ReferenceTensor,
) -> Result<ReferenceTensor> {
    support::numbers("scatter_add", x.dtype())?;
    let routes = routes("scatter_add", x, axis, index, src)?;
    match (x.values(), src.values()) {
        (Values::Real(x_values), Values::Real(src)) => {
            let mut sums = vec![Sum::default(); x_values.len()];
            x_values.iter().zip(&mut sums).for_each(|(&value, sum)| sum.add(value));
            routes.into_iter().for_each(|(from, to)| sums[to].add(src[from]));
            let out = sums.into_iter().map(Sum::value).collect();
            Ok(ReferenceTensor::real(*x.shape(), x.dtype(), out))
        }
        (Values::Int(x_values), Values::Int(src)) => {
            let mut out = x_values.clone();
            routes
                .into_iter()
                .for_each(|(from, to)| out[to] = out[to].wrapping_add(src[from]));
            Ok(ReferenceTensor::int(*x.shape(), x.dtype(), out))
        }
        _ => Err(support::refused("scatter_add", src.dtype())),
    }
}

/// For each element of the index: the position in `src` that it reads and the position in `x` that it writes.
fn routes(
    op: &'static str,
    x: &ReferenceTensor,
    axis: usize,
    index: &ReferenceTensor,
    src: &ReferenceTensor,
) -> Result<Vec<(usize, usize)>> {
    support::expect(op, src, x.dtype())?;
    let chosen = Index::new(op, index, x, axis)?;
    let shape = *index.shape();
    (0..shape.numel())
        .map(|i| {
            let mut at = coordinates(i, &shape);
            let from = position(&at, src.shape());
            at[axis] = chosen.get(i)?;
            Ok((from, position(&at, x.shape())))
        })
        .collect()
}

/// An index tensor; each element is checked against the extent of its axis when it is read.
struct Index<'a> {
    op: &'static str,
    values: &'a [i64],
    axis: usize,
    dim: usize,
}

impl<'a> Index<'a> {
    fn new(op: &'static str, index: &'a ReferenceTensor, x: &ReferenceTensor, axis: usize) -> Result<Self> {
        support::expect(op, index, DType::I64)?;
        match index.values() {
            Values::Int(values) => Ok(Self {
                op,
                values,
                axis,
                dim: x.shape()[axis],
            }),
            Values::Real(_) => Err(support::refused(op, index.dtype())),
        }
    }

    fn get(&self, i: usize) -> Result<usize> {
        let index = self.values[i];
        usize::try_from(index)
            .ok()
            .filter(|&index| index < self.dim)
            .ok_or_else(|| {
                Error::out_of_range(format!(
                    "index {index} is outside 0..{} of axis {}",
                    self.dim, self.axis
                ))
                .with_op(self.op)
            })
    }
}
