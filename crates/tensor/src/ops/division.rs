//! Quotients rounded to integers.

use polygrad_core::{Backend, BinaryOp, DType, Error, Result};

use super::context;
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
    /// `a / b` rounded to an integer, in the operands' promoted dtype: PyTorch's `div` with a `rounding_mode`. Exact for integers, of which
    /// one divided by 0 gives 0. The gradient is 0.
    ///
    /// # Errors
    /// When the shapes do not broadcast, both are bool, or the devices differ.
    pub fn div_rounded(&self, other: &Self, mode: RoundingMode) -> Result<Self> {
        let fail = |e| context(e, "div", &[self, other]);
        self.check_pair(other).map_err(fail)?;
        let dtype = self.dtype().promote(other.dtype());
        if dtype == DType::Bool {
            let error = Error::dtype("bool has no quotient that is bool");
            return Err(fail(error.with_hint("convert an operand with to_dtype")));
        }
        let (a, b) = (self.cast_cow(dtype)?, other.cast_cow(dtype)?);
        Self::in_wide([&*a, &*b], |operands| Self::custom(RoundedDivision(mode), &operands))
    }
}

/// An op of its own for the gradient's sake: 0 also where the quotient has none.
struct RoundedDivision(RoundingMode);

impl<B: Backend> CustomOp<B> for RoundedDivision {
    fn name(&self) -> &str {
        "div"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        let [a, b] = inputs else {
            return Err(Error::invalid("takes two operands"));
        };
        let quotient = |a: &Tensor<B>| B::binary(BinaryOp::Div, &a.value, &b.value).map(Tensor::from_inner);
        match (self.0, a.dtype().is_float()) {
            (RoundingMode::Trunc, true) => quotient(a)?.trunc(),
            (RoundingMode::Trunc, false) => quotient(a),
            (RoundingMode::Floor, false) => {
                // One less where something remains and the signs differ; nothing on the way leaves the dtype.
                let below = a.bitwise_xor(b)?.lt(0i64)?;
                let below = below.logical_and(&a.remainder(b)?.ne(0i64)?)?;
                quotient(a)?.sub(&below.to_dtype(a.dtype())?)
            }
            (RoundingMode::Floor, true) => {
                let quotient = quotient(a)?;
                let floor = quotient.floor()?;
                // A quotient just below an integer may have been rounded up to it: then nearly a whole divisor remains.
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
