//! Checks of dtypes, and their errors.

use polygrad_core::{DType, Error, Result};

use crate::tensor::ReferenceTensor;

/// How an op computes: on reals or on integers.
pub(crate) enum Rule<R, I> {
    Real(R),
    Int(I),
}

/// The error of an op that is not defined for a dtype.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}"))
        .with_op(op)
        .with_device(crate::ReferenceDevice)
}

/// The error of an op that this backend does not know.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("not known to this backend")
        .with_op(op)
        .with_device(crate::ReferenceDevice)
}

/// Fails unless an operand has this dtype.
pub(crate) fn expect(op: &'static str, x: &ReferenceTensor, dtype: DType) -> Result<()> {
    if x.dtype() == dtype {
        return Ok(());
    }
    Err(Error::dtype(format!("takes {dtype} here, got {}", x.dtype())).with_op(op))
}

/// Fails unless the dtype is a float.
pub(crate) fn floats(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(refused(op, dtype))
    }
}

/// Fails if the dtype is bool.
pub(crate) fn numbers(op: &'static str, dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        Err(refused(op, dtype))
    } else {
        Ok(())
    }
}
