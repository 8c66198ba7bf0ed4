//! The core ops.

pub(crate) mod activation;
pub(crate) mod binary;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod create;
pub(crate) mod half;
pub(crate) mod index;
mod integer_matmul;
pub(crate) mod join;
pub(crate) mod matmul;
pub(crate) mod quantized;
pub(crate) mod quantized_linear;
pub(crate) mod reduce;
pub(crate) mod rescale;
pub(crate) mod scan;
pub(crate) mod select;
pub(crate) mod sort;
pub(crate) mod unary;

use polygrad_core::{DType, Error, Result, Shape};

use crate::CpuTensor;

/// The error for an op that is not defined for a dtype.
#[cold]
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    let hint = match dtype {
        DType::Bool => "cast it to a number first with to_dtype",
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => "cast it to an integer first with to_dtype",
        _ => "cast it to a float first with to_dtype",
    };
    Error::dtype(format!("not defined for {dtype}"))
        .with_op(op)
        .with_hint(hint)
}

/// The error for an op that this backend does not know yet.
#[cold]
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("not known to this backend").with_op(op)
}

/// Checks that the dtype is a float.
#[inline]
pub(crate) fn floats(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(refused(op, dtype))
    }
}

/// Checks that the dtype is not bool.
pub(crate) fn numbers(op: &'static str, dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        Err(refused(op, dtype))
    } else {
        Ok(())
    }
}

/// Checks that both operands have one dtype, and returns it.
#[inline]
pub(crate) fn same_dtype(op: &'static str, a: &CpuTensor, b: &CpuTensor) -> Result<DType> {
    if a.dtype() == b.dtype() {
        return Ok(a.dtype());
    }
    Err(mismatch(Error::dtype("operands of different dtypes"), op, a, b))
}

/// Adds the op and the operands to an error.
#[cold]
pub(crate) fn mismatch(error: Error, op: &'static str, a: &CpuTensor, b: &CpuTensor) -> Error {
    error
        .with_op(op)
        .with_operands([(*a.shape(), a.dtype()), (*b.shape(), b.dtype())])
}

/// The shape to which two operands broadcast.
#[inline]
pub(crate) fn broadcast(op: &'static str, a: &CpuTensor, b: &CpuTensor) -> Result<Shape> {
    a.shape()
        .broadcast(b.shape())
        .map_err(|error| mismatch(error, op, a, b))
}

/// Checks that the tensor has this axis.
pub(crate) fn axis_in(op: &'static str, x: &CpuTensor, axis: usize) -> Result<()> {
    if axis < x.shape().rank() {
        return Ok(());
    }
    Err(Error::out_of_range(format!("axis {axis} of shape {}", x.shape())).with_op(op))
}
