//! Mixed precision: products in 16 bits, and ops that need range or precision in f32.

use std::cell::Cell;

use polygrad_core::{Backend, DType, Error, Result, with_local};

use crate::Tensor;

thread_local! {
    static MODE: Cell<Option<DType>> = const { Cell::new(None) };
}

/// The dtype of the [`autocast`] that this thread is in; `None` outside of one.
#[inline]
pub fn autocast_dtype() -> Option<DType> {
    MODE.get()
}

/// Runs `f` in mixed precision on this thread, as PyTorch's `torch.autocast("cpu", dtype)`:
///
/// - Products cast their operands to `dtype`, bf16 or f16, and so have results of `dtype`: `matmul`, `mm`, `bmm`,
///   `addmm`, `einsum`, `linear`, `conv`, `conv_transpose`, `scaled_dot_product_attention` and `prelu`.
/// - Losses, `prod`, pooling over three axes, and padding that reflects or replicates cast f16 and bf16 to f32, and so
///   have results of f32.
/// - All other ops promote their operands' dtypes, as always: a sum of bf16 and f32 is f32.
///
/// f64 and integers are not cast. Casts are ops of the gradient graph, so gradients have the dtype of the parameters,
/// which stay f32, as does the optimizer's state. The backward pass computes in the dtypes of the forward pass,
/// wherever it is called. [`checkpoint`](crate::checkpoint) recomputes in the mode of the forward pass.
///
/// bf16 has the range of f32. In f16, gradients may underflow: scale the loss with the `GradScaler` of polygrad-nn.
///
/// Autocasts nest. `autocast(DType::F32, f)` runs `f` in full precision within another one.
///
/// ```
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{DType, Device, Tensor, autocast};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// # let device = Device::<Reference>::default();
/// let weight = Tensor::var("weight", Tensor::ones([2, 3], &device)?)?;
/// let x = Tensor::ones([4, 3], &device)?;
/// let y = autocast(DType::BF16, || x.linear(&weight, None))?;
/// assert_eq!(y.dtype(), DType::BF16);
/// let gradients = y.sum_all()?.backward()?;
/// assert_eq!(gradients.require(&weight)?.dtype(), DType::F32);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `f`; when the dtype is not bf16, f16 or f32.
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let mode = match dtype {
        DType::BF16 | DType::F16 => Some(dtype),
        DType::F32 => None,
        _ => {
            let error = Error::dtype(format!("products cannot be cast to {dtype}")).with_op("autocast");
            return Err(error.with_hint("give bf16, f16, or f32 to switch autocast off"));
        }
    };
    in_mode(mode, f)
}

/// Runs `f` in a given mode.
pub(crate) fn in_mode<R>(mode: Option<DType>, f: impl FnOnce() -> R) -> R {
    with_local(&MODE, mode, f)
}

/// For ops that autocast runs in 16 bits: while the mode is on, such an op casts its operands, and then calls itself
/// with the mode off.
#[derive(Clone, Copy)]
pub(crate) struct Lower(DType);

impl Lower {
    /// `None` while the mode is off.
    #[inline]
    pub(crate) fn wanted() -> Option<Self> {
        autocast_dtype().map(Self)
    }

    pub(crate) fn cast<B: Backend>(self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.to_dtype(match x.dtype() {
            DType::F32 | DType::F16 | DType::BF16 => self.0,
            other => other,
        })
    }

    pub(crate) fn cast_option<B: Backend>(self, x: Option<&Tensor<B>>) -> Result<Option<Tensor<B>>> {
        x.map(|x| self.cast(x)).transpose()
    }

    pub(crate) fn run<R>(self, op: impl FnOnce() -> R) -> R {
        in_mode(None, op)
    }
}

impl<B: Backend> Tensor<B> {
    /// Casts this tensor as the operands of products are cast. For layers that run entirely in autocast's dtype.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn autocast(&self) -> Result<Self> {
        match Lower::wanted() {
            Some(lower) => lower.cast(self),
            None => Ok(self.clone()),
        }
    }

    /// For ops that autocast computes in f32: this tensor in f32. `None` if the mode is off, or no cast is needed.
    #[inline]
    pub(crate) fn raised(&self) -> Result<Option<Self>> {
        match autocast_dtype() {
            Some(_) if self.dtype() != self.dtype().wide() => self.widened().map(Some),
            _ => Ok(None),
        }
    }
}
