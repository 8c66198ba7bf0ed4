//! `+`, `-`, `*`, `/`, `%` and unary `-` of tensors and numbers on either side, and of an op's `Result` on the left.
//!
//! Rust's coherence rules do not allow a `Result` on the right of a number or another `Result`; it needs a `?` there.
//! Numbers are f64 or i64, one of each kind, so that a literal needs no suffix; an f32 in a variable is converted with
//! `f64::from`.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use polygrad_core::{Backend, BinaryOp, Error, Result, Scalar};

use crate::Tensor;

/// Tensor with tensor. A `Result` operand propagates its error, so that a chain needs one `?`.
macro_rules! tensors {
    ($trait:ident $method:ident $op:ident: $($left:ty, $right:ty, |$l:ident, $r:ident| $a:expr, $b:expr;)*) => {$(
        impl<B: Backend> $trait<$right> for $left {
            type Output = Result<Tensor<B>>;

            #[inline]
            fn $method(self, other: $right) -> Self::Output {
                let ($l, $r) = (self, other);
                $a.binary(BinaryOp::$op, $b)
            }
        }
    )*};
}

/// Tensor with number, on either side.
macro_rules! scalars {
    ($trait:ident $method:ident $op:ident: $($scalar:ty)*) => {$(
        scalars!(@pair $trait $method $op $scalar, Tensor<B>);
        scalars!(@pair $trait $method $op $scalar, &Tensor<B>);
    )*};
    (@pair $trait:ident $method:ident $op:ident $scalar:ty, $tensor:ty) => {
        impl<B: Backend> $trait<$scalar> for $tensor {
            type Output = Result<Tensor<B>>;

            #[inline]
            fn $method(self, scalar: $scalar) -> Self::Output {
                self.binary_scalar(BinaryOp::$op, Scalar::from(scalar), false)
            }
        }

        impl<B: Backend> $trait<$tensor> for $scalar {
            type Output = Result<Tensor<B>>;

            #[inline]
            fn $method(self, tensor: $tensor) -> Self::Output {
                tensor.binary_scalar(BinaryOp::$op, Scalar::from(self), true)
            }
        }
    };
}

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        tensors! { $trait $method $op:
            Tensor<B>, Tensor<B>, |a, b| a, &b;
            Tensor<B>, &Tensor<B>, |a, b| a, b;
            &Tensor<B>, Tensor<B>, |a, b| a, &b;
            &Tensor<B>, &Tensor<B>, |a, b| a, b;
            Tensor<B>, Result<Tensor<B>, Error>, |a, b| a, &b?;
            &Tensor<B>, Result<Tensor<B>, Error>, |a, b| a, &b?;
            Result<Tensor<B>, Error>, Tensor<B>, |a, b| a?, &b;
            Result<Tensor<B>, Error>, &Tensor<B>, |a, b| a?, b;
        }
        scalars! { $trait $method $op: f64 i64 }
    )*};
}

operator! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Remainder;
}

impl<B: Backend> Neg for Tensor<B> {
    type Output = Result<Self>;

    fn neg(self) -> Result<Self> {
        Self::neg(&self)
    }
}

impl<B: Backend> Neg for &Tensor<B> {
    type Output = Result<Tensor<B>>;

    fn neg(self) -> Result<Tensor<B>> {
        Tensor::neg(self)
    }
}
