//! Element-wise ops, which are recorded.

use std::sync::Arc;

use polygrad_core::{
    Backend, BinaryOp, CompareOp, DType, Element, Error, Result, Scalar, Shape, UnaryOp, dispatch_dtype,
};
use polygrad_reference::{Reference, ReferenceDevice};

use crate::Context;
use crate::array::Array;
use crate::chain::{Kind, Operand, record};

fn array(x: &Array) -> Operand {
    Operand::Array(x.clone())
}

/// The error for an op that is not defined for a dtype.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}")).with_op(op)
}

fn accepted(op: &'static str, dtype: DType, accepts: bool) -> Result<()> {
    if accepts { Ok(()) } else { Err(refused(op, dtype)) }
}

pub(crate) fn full(context: &Arc<Context>, shape: Shape, value: Scalar, dtype: DType) -> Result<Array> {
    record(
        context,
        Kind::Fill,
        [Operand::Scalar(rounded(value, dtype), dtype)],
        shape,
        dtype,
    )
}

pub(crate) fn unary(op: UnaryOp, x: &Array) -> Result<Array> {
    accepted(op.name(), x.dtype(), op.accepts(x.dtype()))?;
    let dtype = if op.is_predicate() { DType::Bool } else { x.dtype() };
    record(x.context(), Kind::Unary(op), [array(x)], *x.shape(), dtype)
}

pub(crate) fn binary(op: BinaryOp, a: &Array, b: &Array) -> Result<Array> {
    accepted(op.name(), a.dtype(), op.accepts(a.dtype()))?;
    let shape = a.shape().broadcast(b.shape())?;
    record(a.context(), Kind::Binary(op), [array(a), array(b)], shape, a.dtype())
}

pub(crate) fn binary_scalar(op: BinaryOp, x: &Array, scalar: Scalar, reverse: bool) -> Result<Array> {
    accepted(op.name(), x.dtype(), op.accepts(x.dtype()))?;
    let scalar = Operand::Scalar(rounded(scalar, x.dtype()), x.dtype());
    let operands = if reverse {
        [scalar, array(x)]
    } else {
        [array(x), scalar]
    };
    record(x.context(), Kind::Binary(op), operands, *x.shape(), x.dtype())
}

pub(crate) fn compare(op: CompareOp, a: &Array, b: &Array) -> Result<Array> {
    let shape = a.shape().broadcast(b.shape())?;
    record(a.context(), Kind::Compare(op), [array(a), array(b)], shape, DType::Bool)
}

pub(crate) fn compare_scalar(op: CompareOp, x: &Array, scalar: Scalar) -> Result<Array> {
    let scalar = Operand::Scalar(rounded(scalar, x.dtype()), x.dtype());
    record(
        x.context(),
        Kind::Compare(op),
        [array(x), scalar],
        *x.shape(),
        DType::Bool,
    )
}

pub(crate) fn select(condition: &Array, a: &Array, b: &Array) -> Result<Array> {
    accepted("where", condition.dtype(), condition.dtype() == DType::Bool)?;
    let shape = condition.shape().broadcast(a.shape())?.broadcast(b.shape())?;
    record(
        a.context(),
        Kind::Select,
        [array(condition), array(a), array(b)],
        shape,
        a.dtype(),
    )
}

pub(crate) fn cast(x: &Array, dtype: DType) -> Result<Array> {
    if dtype == x.dtype() {
        return Ok(x.clone());
    }
    record(x.context(), Kind::Cast(dtype), [array(x)], *x.shape(), dtype)
}

/// A number as a tensor of the dtype would store it.
fn rounded(scalar: Scalar, dtype: DType) -> Scalar {
    dispatch_dtype!(dtype, T => <T as Element>::from_scalar(scalar).to_scalar())
}

/// `start + i * step`: written on the host, and copied.
pub(crate) fn iota(context: &Arc<Context>, len: usize, start: Scalar, step: Scalar, dtype: DType) -> Result<Array> {
    context.expect(dtype)?;
    let host = Reference::to_host(&Reference::iota(len, start, step, dtype, &ReferenceDevice)?)?;
    Array::from_host(context, &host)
}
