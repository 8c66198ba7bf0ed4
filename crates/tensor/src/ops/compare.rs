//! Comparisons, logic and choice. Bool results carry no gradient.

use polygrad_core::{Backend, BinaryOp, CompareOp, DType, Error, Op, Result, Scalar};

use super::context;
use crate::Tensor;
use crate::graph::{cut, record};
use crate::operand::Operand;

macro_rules! compare {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            /// Gives bool.
            ///
            /// # Errors
            /// When the shapes do not broadcast, or the devices differ.
            pub fn $name(&self, other: impl Operand<B>) -> Result<Self> {
                other.compared(CompareOp::$op, self)
            }
        )*}
    };
}

compare! {
    /// `a == b`.
    eq = Eq;
    /// `a != b`.
    ne = Ne;
    /// `a < b`.
    lt = Lt;
    /// `a <= b`.
    le = Le;
    /// `a > b`.
    gt = Gt;
    /// `a >= b`.
    ge = Ge;
}

impl<B: Backend> Tensor<B> {
    /// Compares two tensors: shapes broadcast, dtypes promote. Gives bool.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the devices differ.
    pub fn compare(&self, op: CompareOp, other: &Self) -> Result<Self> {
        let dtype = self.dtype().promote(other.dtype());
        let (a, b) = (self.cast_cow(dtype)?, other.cast_cow(dtype)?);
        a.check_pair(&b)
            .and_then(|()| B::compare(op, &a.value, &b.value))
            .map(|value| cut(value, &[self, other], op.name()))
            .map_err(|e| context(e, op.name(), &[self, other]))
    }

    /// Compares with a number on the right, which is first rounded to the tensor's dtype, so that a tensor made from a
    /// number equals it. Gives bool.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn compare_scalar(&self, op: CompareOp, scalar: impl Into<Scalar>) -> Result<Self> {
        let scalar = scalar.into();
        let x = self.cast_cow(self.dtype().promote_scalar(scalar))?;
        B::compare_scalar(op, &x.value, scalar)
            .map(|value| cut(value, &[self], op.name()))
            .map_err(|e| context(e, op.name(), &[self]))
    }

    /// Whether both are true (not 0), as bool.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the devices differ.
    pub fn logical_and(&self, other: &Self) -> Result<Self> {
        self.truth()?.binary(BinaryOp::And, &other.truth()?)
    }

    /// Whether at least one is true (not 0), as bool.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the devices differ.
    pub fn logical_or(&self, other: &Self) -> Result<Self> {
        self.truth()?.binary(BinaryOp::Or, &other.truth()?)
    }

    /// Whether exactly one is true (not 0), as bool.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the devices differ.
    pub fn logical_xor(&self, other: &Self) -> Result<Self> {
        self.truth()?.binary(BinaryOp::Xor, &other.truth()?)
    }

    fn truth(&self) -> Result<Self> {
        self.to_dtype(DType::Bool)
    }

    /// `condition ? a : b`, element by element; all three broadcast, `a` and `b` promote.
    ///
    /// # Errors
    /// When the condition is not bool, the shapes do not broadcast, or the devices differ.
    pub fn where_(condition: &Self, a: &Self, b: &Self) -> Result<Self> {
        let fail = |e| context(e, "where", &[condition, a, b]);
        if condition.dtype() != DType::Bool {
            let error = Error::dtype(format!("the condition is {}, not bool", condition.dtype()));
            return Err(fail(error.with_hint("compare it, for example with ne(0)")));
        }
        let dtype = a.dtype().promote(b.dtype());
        let (a, b) = (&*a.cast_cow(dtype)?, &*b.cast_cow(dtype)?);
        let check = || {
            a.check_device(b)?;
            a.check_device(condition)?;
            a.shape().broadcast(&b.shape())?.broadcast(&condition.shape())
        };
        check().map_err(fail)?;
        let value = B::select(&condition.value, &a.value, &b.value).map_err(fail)?;
        Ok(record(value, &[condition, a, b], || Op::Select))
    }

    /// `value` where the mask is true, the elements of this tensor elsewhere.
    ///
    /// # Errors
    /// When the mask is not bool, the shapes do not broadcast, or the devices differ.
    pub fn masked_fill(&self, mask: &Self, value: impl Into<Scalar>) -> Result<Self> {
        let value = Self::full((), value, (&self.device(), self.dtype()))?;
        Self::where_(mask, &value, self)
    }
}
