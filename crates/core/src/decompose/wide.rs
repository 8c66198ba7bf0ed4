//! f16 and bf16: ops of several steps run in f32 and round their results once. In f16 or bf16, intermediate results
//! would overflow (the square of 300 is infinite in f16) and be rounded each time.

use crate::{Backend, DType, Result};

/// Whether a tensor is f16 or bf16.
pub(super) fn is_narrow<B: Backend>(x: &B::Tensor) -> bool {
    B::dtype(x).wide() != B::dtype(x)
}

/// A float tensor in f32.
pub(super) fn widen<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    B::cast(x, DType::F32)
}

/// [`widen`] for an optional tensor.
pub(super) fn widen_option<B: Backend>(x: Option<&B::Tensor>) -> Result<Option<B::Tensor>> {
    x.map(widen::<B>).transpose()
}

/// Two results in the dtype of the tensor that they were computed from.
pub(super) fn narrow2<B: Backend>(results: (B::Tensor, B::Tensor), dtype: DType) -> Result<(B::Tensor, B::Tensor)> {
    Ok((B::cast(&results.0, dtype)?, B::cast(&results.1, dtype)?))
}

/// [`narrow2`] for three.
pub(super) fn narrow3<B: Backend>(
    results: (B::Tensor, B::Tensor, B::Tensor),
    dtype: DType,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    Ok((
        B::cast(&results.0, dtype)?,
        B::cast(&results.1, dtype)?,
        B::cast(&results.2, dtype)?,
    ))
}
