//! Rounded division and its remainder.

use polygrad_core::{Backend, BinaryOp, DType, Error, Result};

use super::context;
use crate::operand::Operand;
use crate::{CustomOp, Tensor};

/// How [`Tensor::div_rounded`] rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoundingMode {
    /// Towards zero, as C and Rust divide integers.
    Trunc,
    /// Towards minus infinity, as Python's `//`.
    Floor,
}

impl<B: Backend> Tensor<B> {
    /// `a / b` rounded to an integer, in the operands' promoted dtype: PyTorch's `div` with a `rounding_mode`. Exact
    /// for integers; an integer divided by 0 gives 0. The gradient is 0.
    ///
    /// # Errors
    /// When the shapes do not broadcast, both are bool, or the devices differ.
    pub fn div_rounded(&self, other: &Self, mode: RoundingMode) -> Result<Self> {
        self.divided("div", other, RoundedDivision(mode))
    }

    /// `a - b * trunc(a / b)`: the remainder of a tensor or number, with the sign of the dividend, in the operands'
    /// promoted dtype. The gradient wrt `a` is 1, and wrt `b` it is `-trunc(a / b)`, as in PyTorch.
    ///
    /// # Errors
    /// When the shapes do not broadcast, both are bool, or the devices differ.
    pub fn fmod(&self, other: impl Operand<B>) -> Result<Self> {
        let other = other.beside(self).map_err(|e| context(e, "fmod", &[self]))?;
        self.divided("fmod", &other, Fmod)
    }

    /// Applies an op to both operands in their promoted dtype, which must not be bool.
    fn divided(&self, name: &'static str, other: &Self, op: impl CustomOp<B>) -> Result<Self> {
        let fail = |e| context(e, name, &[self, other]);
        self.check_pair(other).map_err(fail)?;
        let dtype = self.dtype().promote(other.dtype());
        if dtype == DType::Bool {
            let error = Error::dtype("bool cannot be divided as bool");
            return Err(fail(error.with_hint("convert an operand with to_dtype")));
        }
        let (a, b) = (self.cast_cow(dtype)?, other.cast_cow(dtype)?);
        Self::in_wide([&*a, &*b], |operands| Self::custom(op, &operands)).map_err(fail)
    }
}

/// A separate op, so that its gradient is 0 even where the quotient has no gradient.
struct RoundedDivision(RoundingMode);

impl<B: Backend> CustomOp<B> for RoundedDivision {
    fn name(&self) -> &str {
        "div"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        let [a, b] = two(inputs)?;
        let quotient = |a: &Tensor<B>| B::binary(BinaryOp::Div, &a.value, &b.value).map(Tensor::from_inner);
        match (self.0, a.dtype().is_float()) {
            (RoundingMode::Trunc, true) => quotient(a)?.trunc(),
            (RoundingMode::Trunc, false) => quotient(a),
            (RoundingMode::Floor, false) => {
                // One less if there is a remainder and the signs differ; no step overflows the dtype.
                let below = a.bitwise_xor(b)?.lt(0i64)?;
                let below = below.logical_and(&a.remainder(b)?.ne(0i64)?)?;
                quotient(a)?.sub(&below.to_dtype(a.dtype())?)
            }
            (RoundingMode::Floor, true) => {
                let quotient = quotient(a)?;
                let floor = quotient.floor()?;
                // A quotient just below an integer may have been rounded up to it. The remainder is then almost the
                // whole divisor.
                let rest = a.remainder(b)?.div(b)?;
                let above = quotient.eq(&floor)?.logical_and(&rest.gt(0.5)?)?;
                Tensor::where_(&above, &(&floor - 1.0)?, &floor)
            }
        }
    }

    fn backward(&self, inputs: &[Tensor<B>], _: &Tensor<B>, _: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>> {
        inputs.iter().map(|x| x.zeros_like().map(Some)).collect()
    }
}

/// A separate op, so that its gradient is correct even where the dividend is 0.
struct Fmod;

impl<B: Backend> CustomOp<B> for Fmod {
    fn name(&self) -> &str {
        "fmod"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        let [a, b] = two(inputs)?;
        if a.dtype().is_float() {
            let rest = a.abs()?.remainder(&b.abs()?)?;
            return Tensor::where_(&a.lt(0.0)?, &rest.neg()?, &rest);
        }
        // Without `abs`, since the smallest integer has no absolute value.
        let rest = a.remainder(b)?;
        let turned = rest.lt(0i64)?.ne(&a.lt(0i64)?)?.logical_and(&rest.ne(0i64)?)?;
        Tensor::where_(&turned, &rest.sub(b)?, &rest)
    }

    fn backward(&self, inputs: &[Tensor<B>], _: &Tensor<B>, grad: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>> {
        let [a, b] = two(inputs)?;
        let of_divisor = grad.mul(&a.div_rounded(b, RoundingMode::Trunc)?)?.neg()?;
        Ok(vec![Some(grad.sum_to(a.shape())?), Some(of_divisor.sum_to(b.shape())?)])
    }
}

fn two<B: Backend>(inputs: &[Tensor<B>]) -> Result<&[Tensor<B>; 2]> {
    inputs.try_into().map_err(|_| Error::invalid("takes two operands"))
}
