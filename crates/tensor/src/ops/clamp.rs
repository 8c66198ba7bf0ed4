//! Limits of values.

use polygrad_core::{AnyBackend, Backend, BinaryOp, DType, Error, Result, Scalar, bf16, f16};

use super::context;
use crate::Tensor;

/// A bound of [`Tensor::clamp`]: a number, or a tensor that broadcasts.
#[derive(Clone, Copy)]
pub enum ClampBound<'a, B: Backend = AnyBackend> {
    /// One for all elements.
    Number(Scalar),
    /// One for each element.
    Tensor(&'a Tensor<B>),
}

impl<'a, B: Backend> From<&'a Tensor<B>> for ClampBound<'a, B> {
    fn from(bound: &'a Tensor<B>) -> Self {
        Self::Tensor(bound)
    }
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl<B: Backend> From<$type> for ClampBound<'_, B> {
            fn from(bound: $type) -> Self {
                Self::Number(bound.into())
            }
        }
    )*};
}

numbers! { Scalar u8 i32 i64 usize f16 bf16 f32 f64 }

impl<B: Backend> ClampBound<'_, B> {
    fn promote(&self, dtype: DType) -> DType {
        match self {
            Self::Number(bound) => dtype.promote_scalar(*bound),
            Self::Tensor(bound) => dtype.promote(bound.dtype()),
        }
    }
}

impl<B: Backend> Tensor<B> {
    /// Limits the values to `min..=max`. Each bound is `None`, a number or a tensor that broadcasts. The tensor's and
    /// the bounds' dtypes promote: integers stay integers unless a bound is a float. Where `min > max`, the result is
    /// `max`.
    ///
    /// The gradient passes where the value is within the bounds, or equal to one. Elsewhere it goes to the exceeded
    /// bound, if that is a tensor. NaN gets no gradient.
    ///
    /// ```
    /// # use polygrad_tensor::{Device, Result, Tensor};
    /// # fn limited<B: polygrad_tensor::Backend>(device: &Device<B>) -> Result<()> {
    /// let x = Tensor::new([-1.5, 0.5, 2.0], device)?;
    /// let relu6 = x.clamp(Some(0.0), Some(6.0))?;
    /// let above = x.clamp(Some(&Tensor::new([0.0, 1.0, 2.0], device)?), None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When neither bound is given, no number of the dtype satisfies a bound, shapes do not broadcast, or the devices
    /// differ.
    pub fn clamp<'a, S: Into<ClampBound<'a, B>>>(&self, min: Option<S>, max: Option<S>) -> Result<Self>
    where
        B: 'a,
    {
        let fail = |e| context(e, "clamp", &[self]);
        let (min, max) = (min.map(S::into), max.map(S::into));
        let bounds = || [&min, &max].into_iter().flatten();
        if bounds().next().is_none() {
            return Err(fail(Error::invalid("at least one bound must be given")));
        }
        let dtype = bounds().fold(self.dtype(), |dtype, bound| bound.promote(dtype));
        let mut x = self.to_dtype(dtype)?;
        if bounds().any(|bound| matches!(bound, ClampBound::Tensor(_))) {
            let spread = |op, bound: Option<ClampBound<'a, B>>| {
                let bound = bound.map(|bound| match bound {
                    ClampBound::Number(bound) => Self::full((), reachable(op, bound, dtype)?, (&self.device(), dtype)),
                    ClampBound::Tensor(bound) => bound.to_dtype(dtype),
                });
                bound.transpose().map_err(fail)
            };
            let (min, max) = (spread(BinaryOp::Maximum, min)?, spread(BinaryOp::Minimum, max)?);
            return x.clamp_by(min.as_ref(), max.as_ref()).map_err(fail);
        }
        for (op, bound) in [(BinaryOp::Maximum, min), (BinaryOp::Minimum, max)] {
            if let Some(ClampBound::Number(bound)) = bound {
                x = x.binary_scalar(op, reachable(op, bound, dtype).map_err(fail)?, false)?;
            }
        }
        Ok(x)
    }

    /// [`Tensor::clamp`] with tensors of one dtype as bounds.
    fn clamp_by(&self, min: Option<&Self>, max: Option<&Self>) -> Result<Self> {
        let mut y = self.detach();
        for (op, bound) in [(BinaryOp::Maximum, min), (BinaryOp::Minimum, max)] {
            if let Some(bound) = bound {
                y = y.binary(op, &bound.detach())?;
            }
        }
        if !(self.is_tracked() || [min, max].into_iter().flatten().any(Self::is_tracked)) {
            return Ok(y);
        }
        // Takes each value from the operand that gets its gradient. Other values, such as NaN, get none.
        let mut inside = None;
        if let Some(max) = max {
            let (mut above, within) = (self.gt(max)?, self.le(max)?);
            if let Some(min) = min {
                above = above.logical_or(&max.lt(min)?)?;
            }
            y = Self::where_(&above, max, &y)?;
            inside = Some(within);
        }
        if let Some(min) = min {
            let (mut below, mut within) = (self.lt(min)?, self.ge(min)?);
            if let (Some(max), Some(under)) = (max, &inside) {
                below = below.logical_and(&min.lt(max)?)?;
                within = within.logical_and(under)?;
            }
            y = Self::where_(&below, min, &y)?;
            inside = Some(within);
        }
        match inside {
            Some(inside) => Self::where_(&inside, self, &y),
            None => Ok(y),
        }
    }
}

/// A bound as a number of the dtype. A bound outside the dtype's range either does not limit, or cannot be
/// satisfied, which is an error.
fn reachable(op: BinaryOp, bound: Scalar, dtype: DType) -> Result<Scalar> {
    let (low, high) = match dtype {
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => return Ok(bound),
    };
    let value = bound.to_i64();
    let kept = value.clamp(low, high);
    let limits = if op == BinaryOp::Maximum {
        value > high
    } else {
        value < low
    };
    if limits {
        return Err(Error::out_of_range(format!("no {dtype} reaches the bound {value}"))
            .with_hint("convert the tensor with to_dtype(DType::I64)"));
    }
    Ok(Scalar::Int(kept))
}
