//! Element-wise ops.

use std::borrow::Cow;

use polygrad_core::{Backend, BinaryOp, DType, Error, Op, Result, Scalar, UnaryOp, decompose};

use super::context;
use crate::Tensor;
use crate::graph::{cut, record};
use crate::operand::Operand;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the op does not take the dtype, or memory runs out.
            pub fn $name(&self) -> Result<Self> {
                self.unary(UnaryOp::$op)
            }
        )*}
    };
}

unary! {
    /// `-x`.
    neg = Neg;
    /// `|x|`; its gradient at 0 is 0.
    abs = Abs;
    /// −1, 0 or 1; 0 for NaN, as in PyTorch.
    sign = Sign;
    /// `e^x`.
    exp = Exp;
    /// `e^x - 1`, precise near 0.
    expm1 = Expm1;
    /// Natural logarithm.
    log = Log;
    /// `ln(1 + x)`, precise near 0.
    log1p = Log1p;
    /// Square root.
    sqrt = Sqrt;
    /// `1 / sqrt(x)`.
    rsqrt = Rsqrt;
    /// `1 / x`.
    reciprocal = Reciprocal;
    /// Rounds towards minus infinity.
    floor = Floor;
    /// Rounds towards plus infinity.
    ceil = Ceil;
    /// Rounds to the nearest integer, halves to even.
    round = Round;
    /// Rounds towards zero.
    trunc = Trunc;
    /// Sine.
    sin = Sin;
    /// Cosine.
    cos = Cos;
    /// Tangent.
    tan = Tan;
    /// Gauss's error function.
    erf = Erf;
    /// `x == 0`, as bool.
    logical_not = LogicalNot;
    /// Whether it is NaN, as bool.
    isnan = IsNan;
    /// Whether it is infinite, as bool.
    isinf = IsInf;
    /// Whether it is neither NaN nor infinite, as bool.
    isfinite = IsFinite;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the shapes do not broadcast, the op does not take the dtypes, or the devices differ.
            #[inline]
            pub fn $name(&self, other: impl Operand<B>) -> Result<Self> {
                other.combined(BinaryOp::$op, self)
            }
        )*}
    };
}

binary! {
    /// `a + b`, also as operator `+`.
    add = Add;
    /// `a - b`, also as operator `-`.
    sub = Sub;
    /// `a * b`, also as operator `*`.
    mul = Mul;
    /// `a / b`, also as operator `/`; integers give f32.
    div = Div;
    /// `a - b * floor(a / b)`: the remainder with the sign of the divisor. Also as operator `%`.
    remainder = Remainder;
    /// `a ^ b`.
    pow = Pow;
    /// The larger operand; NaN if either is. A tie shares the gradient equally.
    maximum = Maximum;
    /// The smaller operand; NaN if either is. A tie shares the gradient equally.
    minimum = Minimum;
    /// The angle of the point (b, a).
    atan2 = Atan2;
    /// `ln(e^a + e^b)`, which does not overflow.
    logaddexp = LogAddExp;
    /// Bitwise and; logical for bool.
    bitwise_and = And;
    /// Bitwise or; logical for bool.
    bitwise_or = Or;
    /// Bitwise exclusive or; logical for bool.
    bitwise_xor = Xor;
}

impl<B: Backend> Tensor<B> {
    /// Applies a function of the family [`UnaryOp`]; integers become f32 if the function is only defined for real
    /// numbers.
    ///
    /// # Errors
    /// When the op does not take the dtype, or memory runs out.
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        if op.needs_float() && !self.dtype().is_float() {
            return self.to_dtype(DType::F32)?.unary(op);
        }
        let value = B::unary(op, &self.value).map_err(|e| context(e, op.name(), &[self]))?;
        if op.is_predicate() {
            return Ok(cut(value, &[self], op.name()));
        }
        Ok(record(value, &[self], || Op::Unary(op)))
    }

    /// Combines two tensors by a function of the family [`BinaryOp`]: shapes broadcast, dtypes promote.
    ///
    /// # Errors
    /// When the shapes do not broadcast, the op does not take the dtypes, or the devices differ.
    #[inline]
    pub fn binary(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        let (a, b) = (self, other);
        let dtype = a.dtype();
        if dtype != b.dtype() || !takes(op, dtype) {
            return self.binary_promoted(op, other);
        }
        let value = a
            .check_pair(b)
            .and_then(|()| B::binary(op, &a.value, &b.value))
            .map_err(|e| context(e, op.name(), &[a, b]))?;
        Ok(record(value, &[a, b], || Op::Binary(op)))
    }

    /// Fails unless both operands are on one device and their shapes broadcast.
    #[inline]
    pub(crate) fn check_pair(&self, other: &Self) -> Result<()> {
        self.check_device(other)?;
        let (a, b) = (self.shape(), other.shape());
        if a == b { Ok(()) } else { a.broadcast(&b).map(|_| ()) }
    }

    #[cold]
    fn binary_promoted(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        let mut dtype = self.dtype().promote(other.dtype());
        if is_real(op) {
            dtype = dtype.to_float();
        }
        if !takes(op, dtype) {
            let error = Error::dtype(format!("{} does not take {dtype}", op.name()));
            let error = match op {
                BinaryOp::Sub => error.with_hint("for bool use bitwise_xor or logical_not"),
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                    error.with_hint("for the truth of numbers use logical_and, logical_or, logical_xor")
                }
                _ => error,
            };
            return Err(context(error, op.name(), &[self, other]));
        }
        self.cast_cow(dtype)?.binary(op, &*other.cast_cow(dtype)?)
    }

    pub(crate) fn cast_cow(&self, dtype: DType) -> Result<Cow<'_, Self>> {
        if self.dtype() == dtype {
            return Ok(Cow::Borrowed(self));
        }
        self.to_dtype(dtype).map(Cow::Owned)
    }

    /// Combines with a number on the right (on the left if `reverse`), which changes the dtype only if it is of a
    /// higher kind (bool, integer, float). With f16 and bf16 only the result is rounded, not the number: `x * 1e5` is
    /// finite for a small `x`.
    ///
    /// # Errors
    /// When the op does not take the dtype, or memory runs out.
    pub fn binary_scalar(&self, op: BinaryOp, scalar: impl Into<Scalar>, reverse: bool) -> Result<Self> {
        let scalar = scalar.into();
        let mut dtype = self.dtype().promote_scalar(scalar);
        if is_real(op) {
            dtype = dtype.to_float();
        }
        if !takes(op, dtype) {
            let error = Error::dtype(format!("{} does not take {dtype}", op.name()));
            return Err(context(error, op.name(), &[self]));
        }
        let x = self.cast_cow(dtype)?;
        let value =
            decompose::binary_number::<B>(op, &x.value, scalar, reverse).map_err(|e| context(e, op.name(), &[self]))?;
        Ok(record(value, &[&*x], || Op::BinaryScalar { op, scalar, reverse }))
    }

    /// `x * x`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn square(&self) -> Result<Self> {
        self.mul(self)
    }

    /// Converts to another dtype; the gradient is converted back.
    ///
    /// # Errors
    /// When the backend lacks the dtype.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        let value = B::cast(&self.value, dtype).map_err(|e| context(e, "to_dtype", &[self]))?;
        if !dtype.is_float() {
            return Ok(cut(value, &[self], "to_dtype"));
        }
        Ok(record(value, &[self], || Op::Cast(dtype)))
    }
}

/// Whether an op is only defined for real numbers, so that integers become f32.
#[inline]
fn is_real(op: BinaryOp) -> bool {
    op == BinaryOp::Div || !op.accepts(DType::I64)
}

/// Whether an op is defined for a dtype without promotion.
#[inline]
fn takes(op: BinaryOp, dtype: DType) -> bool {
    op.accepts(dtype) && (dtype.is_float() || !is_real(op))
}
