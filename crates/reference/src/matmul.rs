//! Matrix products.

use polygrad_core::{Error, Result, Shape};

use crate::number::Sum;
use crate::positions::{broadcast_position, coordinates};
use crate::support;
use crate::tensor::{ReferenceTensor, Values, collect};

pub(crate) fn matmul(a: &ReferenceTensor, b: &ReferenceTensor) -> Result<ReferenceTensor> {
    support::numbers("matmul", a.dtype())?;
    support::expect("matmul", b, a.dtype())?;
    let (a_rank, b_rank) = (a.shape().rank(), b.shape().rank());
    let unfit = |what: &'static str| {
        let operands = [(*a.shape(), a.dtype()), (*b.shape(), b.dtype())];
        Error::shape(what).with_op("matmul").with_operands(operands)
    };
    if a_rank < 2 || b_rank < 2 {
        return Err(unfit("both must have rank 2 or more"));
    }
    let (a_batch, a_matrix) = a.shape().split_at(a_rank - 2);
    let (b_batch, b_matrix) = b.shape().split_at(b_rank - 2);
    let (a_batch, b_batch) = (Shape::new(a_batch)?, Shape::new(b_batch)?);
    let batch = a_batch.broadcast(&b_batch).map_err(|e| e.with_op("matmul"))?;
    let (&[m, k], &[inner, n]) = (a_matrix, b_matrix) else {
        return Err(unfit("both must have rank 2 or more"));
    };
    if k != inner {
        return Err(unfit(
            "the columns of the first are not as many as the rows of the second",
        ));
    }
    let shape = Shape::new(&[batch.dims(), &[m, n]].concat())?;
    // The positions of the first elements of the row of `a` and the column of `b` whose product is element `i`.
    let starts = |i: usize| {
        let at = coordinates(i, &shape);
        let (leading, row, column) = (&at[..batch.rank()], at[batch.rank()], at[batch.rank() + 1]);
        (
            broadcast_position(leading, &a_batch) * m * k + row * k,
            broadcast_position(leading, &b_batch) * k * n + column,
        )
    };
    match (a.values(), b.values()) {
        (Values::Real(x), Values::Real(y)) => {
            let values = collect(shape.numel(), |i| {
                let (row, column) = starts(i);
                Ok(Sum::of((0..k).map(|p| x[row + p] * y[column + p * n])))
            })?;
            Ok(ReferenceTensor::real(shape, a.dtype(), values))
        }
        (Values::Int(x), Values::Int(y)) => {
            let values = collect(shape.numel(), |i| {
                let (row, column) = starts(i);
                let products = (0..k).map(|p| x[row + p].wrapping_mul(y[column + p * n]));
                Ok(products.fold(0, i64::wrapping_add))
            })?;
            Ok(ReferenceTensor::int(shape, a.dtype(), values))
        }
        _ => Err(support::refused("matmul", a.dtype())),
    }
}
