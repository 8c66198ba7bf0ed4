//! Right operands of binary ops.

use polygrad_core::{Backend, BinaryOp, CompareOp, Result, Scalar, bf16, f16};

use crate::Tensor;

/// The other operand of [`Tensor::add`], [`Tensor::gt`] and the like: a tensor, a reference to one, or a number.
///
/// A number takes the tensor's dtype, unless it is of a higher kind (bool, integer, float). With f16 and bf16 the
/// number itself is not rounded, only the result. Comparisons first round it to the tensor's dtype, so that a tensor
/// made from a number equals it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a tensor of backend `{B}` nor a number",
    label = "takes a tensor, a reference to one, or a number",
    note = "the result of an op is a `Result`: put `?` behind it",
    note = "a tensor of another backend comes over with `to_backend(&device)`"
)]
pub trait Operand<B: Backend> {
    /// `left op self`.
    #[doc(hidden)]
    fn combined(self, op: BinaryOp, left: &Tensor<B>) -> Result<Tensor<B>>;

    /// `left op self`, as bool.
    #[doc(hidden)]
    fn compared(self, op: CompareOp, left: &Tensor<B>) -> Result<Tensor<B>>;

    /// Converts to a tensor; a number gets the dtype in which it is combined with the left operand.
    #[doc(hidden)]
    fn beside(self, left: &Tensor<B>) -> Result<Tensor<B>>;
}

macro_rules! tensors {
    ($($type:ty)*) => {$(
        impl<B: Backend> Operand<B> for $type {
            #[inline]
            fn combined(self, op: BinaryOp, left: &Tensor<B>) -> Result<Tensor<B>> {
                left.binary(op, &self)
            }

            fn compared(self, op: CompareOp, left: &Tensor<B>) -> Result<Tensor<B>> {
                left.compare(op, &self)
            }

            fn beside(self, _: &Tensor<B>) -> Result<Tensor<B>> {
                Ok(Tensor::clone(&self))
            }
        }
    )*};
}

tensors! { Tensor<B> &Tensor<B> &&Tensor<B> }

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl<B: Backend> Operand<B> for $type {
            #[inline]
            fn combined(self, op: BinaryOp, left: &Tensor<B>) -> Result<Tensor<B>> {
                left.binary_scalar(op, Scalar::from(self), false)
            }

            fn compared(self, op: CompareOp, left: &Tensor<B>) -> Result<Tensor<B>> {
                left.compare_scalar(op, Scalar::from(self))
            }

            fn beside(self, left: &Tensor<B>) -> Result<Tensor<B>> {
                let scalar = Scalar::from(self);
                Tensor::full((), scalar, (&left.device(), left.dtype().promote_scalar(scalar)))
            }
        }
    )*};
}

numbers! { bool u8 i32 i64 usize f16 bf16 f32 f64 Scalar }
