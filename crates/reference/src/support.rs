//! What is computed for which dtype, and the errors for the rest.

use polygrad_core::{DType, Error, Result};

use crate::tensor::ReferenceTensor;

/// How an op computes: on reals or on integers.
pub(crate) enum Rule<R, I> {
    Real(R),
    Int(I),
}

/// An op that makes no sense for a dtype.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}"))
        .with_op(op)
        .with_device(crate::ReferenceDevice)
}

/// An op that is newer than this backend.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("not known to this backend")
        .with_op(op)
        .with_device(crate::ReferenceDevice)
}

/// An operand that must have a certain dtype.
pub(crate) fn expect(op: &'static str, x: &ReferenceTensor, dtype: DType) -> Result<()> {
    if x.dtype() == dtype {
        return Ok(());
    }
    Err(Error::dtype(format!("takes {dtype} here, got {}", x.dtype())).with_op(op))
}

/// An op for floats alone.
pub(crate) fn floats(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(refused(op, dtype))
    }
}

/// An op for all numbers, but not for bool.
pub(crate) fn numbers(op: &'static str, dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        Err(refused(op, dtype))
    } else {
        Ok(())
    }
}
