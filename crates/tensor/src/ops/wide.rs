//! Several ops as one: f16 and bf16 are widened to f32, and the result is rounded once.

use polygrad_core::{Backend, DType, Result};

use crate::Tensor;
use crate::autocast::{autocast_dtype, in_mode};

impl<B: Backend> Tensor<B> {
    /// Computes `f`, which has several steps, as if it were one op. In f16 and bf16, steps would overflow (the square
    /// of 300 is infinite in f16) and each would round. So `f` gets its operands in f32, and its result is rounded
    /// once, to the dtype that the operands' float dtypes promote to. The same holds for the gradient. Operands of
    /// other dtypes are passed as they are.
    ///
    /// ```
    /// # use polygrad_tensor::{Backend, Result, Tensor};
    /// fn mean_square<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    ///     Tensor::in_wide([x], |[x]| x.square()?.mean_all())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of `f`; when memory runs out.
    pub fn in_wide<const N: usize>(operands: [&Self; N], f: impl FnOnce([&Self; N]) -> Result<Self>) -> Result<Self> {
        let Some(dtype) = narrow(&operands) else {
            return f(operands);
        };
        let mut wide = operands.map(Self::clone);
        for operand in &mut wide {
            *operand = operand.widened()?;
        }
        in_mode(None, || f(wide.each_ref()))?.to_dtype(dtype)
    }

    /// [`Tensor::in_wide`] for losses, whose result stays f32 under [`autocast`](crate::autocast()).
    ///
    /// # Errors
    /// As [`Tensor::in_wide`].
    pub fn in_full<const N: usize>(operands: [&Self; N], f: impl FnOnce([&Self; N]) -> Result<Self>) -> Result<Self> {
        if autocast_dtype().is_none() {
            return Self::in_wide(operands, f);
        }
        let mut wide = operands.map(Self::clone);
        for operand in &mut wide {
            *operand = operand.widened()?;
        }
        in_mode(None, || f(wide.each_ref()))
    }

    /// Converts to [`DType::wide`], which only changes f16 and bf16.
    pub(crate) fn widened(&self) -> Result<Self> {
        self.to_dtype(self.dtype().wide())
    }
}

/// The dtype of the result of ops that are computed in f32; `None` if no operand is f16 or bf16.
pub(super) fn narrow<B: Backend>(operands: &[&Tensor<B>]) -> Option<DType> {
    let dtypes = || operands.iter().map(|x| x.dtype()).filter(|dtype| dtype.is_float());
    if dtypes().all(|dtype| dtype.wide() == dtype) {
        return None;
    }
    dtypes().reduce(DType::promote)
}
