//! Reductions composed of others.

use polygrad_core::{Axes, Backend, CompareOp, Error, ReduceOp, Result, Scalar};

use super::reduce::with_and_without_axes;
use super::{IntoAxes, context};
use crate::Tensor;

with_and_without_axes! {
    /// Variance over axes, divided by the number of elements minus `correction` (PyTorch's default is 1, the unbiased
    /// estimate), or by 0 if that is negative; NaN over nothing.
    /// PyTorch's `var`; here [`Tensor::var`] makes a named leaf.
    ///
    /// # Errors
    /// When an axis is out of range or given twice, or the dtype is not a float.
    #[doc(alias = "var")]
    variance, variance_keepdim = variance_with(axes: impl IntoAxes, correction: impl Into<Scalar>) -> Self;
    /// Standard deviation: the root of [`Tensor::variance`]. Where all values are equal it is 0,
    /// and so is its gradient.
    ///
    /// # Errors
    /// As [`Tensor::variance`].
    std, std_keepdim = std_with(axes: impl IntoAxes, correction: impl Into<Scalar>) -> Self;
    /// `ln Σ e^x` over axes, without overflow; minus infinity over nothing.
    ///
    /// # Errors
    /// When an axis is out of range or given twice.
    logsumexp, logsumexp_keepdim = logsumexp_with(axes: impl IntoAxes) -> Self;
    /// The p-norm over axes: `(Σ |x|^p)^(1/p)`; the largest `|x|` for infinity, the smallest for minus infinity, the
    /// number of elements that are not 0 for 0. An element that is 0 has the gradient 0.
    ///
    /// # Errors
    /// When an axis is out of range or given twice, or `p` is NaN.
    norm, norm_keepdim = norm_with(p: f64, axes: impl IntoAxes) -> Self;
}

impl<B: Backend> Tensor<B> {
    fn variance_with(&self, axes: impl IntoAxes, correction: impl Into<Scalar>, keepdims: bool) -> Result<Self> {
        let fail = |e| context(e, "variance", &[self]);
        let axes = axes.into_axes(&self.shape()).map_err(fail)?;
        let correction = correction.into().to_f64();
        Self::in_wide([self], |[x]| x.spread(axes, correction, keepdims)).map_err(fail)
    }

    /// [`Tensor::variance`] in this dtype.
    fn spread(&self, axes: Axes, correction: f64, keepdims: bool) -> Result<Self> {
        let count: usize = axes.iter().map(|axis| self.shape()[axis]).product();
        // With at most `correction` elements this is 0 / 0 or a division by 0, as in PyTorch.
        let divisor = (count as f64 - correction).max(0.0);
        if count == 0 {
            return self.reduce_axes(ReduceOp::Sum, axes, keepdims)? / divisor;
        }
        // For values far from 0, the mean's rounding error may exceed their differences. So the first mean only moves
        // them near 0, where a second mean is precise.
        let near = self.sub(&self.detach().reduce_axes(ReduceOp::Mean, axes, true)?)?;
        let centred = near.sub(&near.reduce_axes(ReduceOp::Mean, axes, true)?)?;
        centred.square()?.reduce_axes(ReduceOp::Sum, axes, keepdims)? / divisor
    }

    fn std_with(&self, axes: impl IntoAxes, correction: impl Into<Scalar>, keepdims: bool) -> Result<Self> {
        let fail = |e| context(e, "std", &[self]);
        let axes = axes.into_axes(&self.shape()).map_err(fail)?;
        let correction = correction.into().to_f64();
        let count: usize = axes.iter().map(|axis| self.shape()[axis]).product();
        let root = |x: &Self| {
            let variance = x.spread(axes, correction, keepdims)?;
            if !x.is_tracked() || count as f64 <= correction.max(0.0) {
                return variance.sqrt();
            }
            // The root has an infinite slope at 0. Rounding may give equal values a variance that is not 0, so they
            // are compared directly.
            let x = x.detach();
            let extreme = |op| x.reduce_axes(op, axes, keepdims);
            let equal = extreme(ReduceOp::Max)?.eq(&extreme(ReduceOp::Min)?)?;
            let finite = variance.isfinite()?;
            let is_zero = variance.eq(0.0)?.logical_or(&equal.logical_and(&finite)?)?;
            variance.masked_fill(&is_zero, 1.0)?.sqrt()?.masked_fill(&is_zero, 0.0)
        };
        Self::in_wide([self], |[x]| root(x)).map_err(fail)
    }

    fn logsumexp_with(&self, axes: impl IntoAxes, keepdims: bool) -> Result<Self> {
        let fail = |e| context(e, "logsumexp", &[self]);
        let axes = axes.into_axes(&self.shape()).map_err(fail)?;
        let x = self.cast_cow(self.dtype().to_float()).map_err(fail)?;
        Self::in_wide([&*x], |[x]| {
            if axes.iter().any(|axis| x.shape()[axis] == 0) {
                return x.reduce_axes(ReduceOp::Sum, axes, keepdims)?.log();
            }
            let top = x.detach().reduce_axes(ReduceOp::Max, axes, true)?;
            // An infinite maximum must not be subtracted from itself.
            let zero = top.zeros_like()?;
            let top = Self::where_(&top.isfinite()?, &top, &zero)?;
            let powers = x.sub(&top)?.exp()?;
            let total = powers.reduce_axes(ReduceOp::Sum, axes, true)?.log()?.add(&top)?;
            if keepdims {
                return Ok(total);
            }
            total.reshape(x.shape().reduced(axes, false))
        })
        .map_err(fail)
    }

    fn norm_with(&self, p: f64, axes: impl IntoAxes, keepdims: bool) -> Result<Self> {
        if p.is_nan() {
            return Err(context(Error::invalid("the order of the norm is NaN"), "norm", &[self]));
        }
        let fail = |e| context(e, "norm", &[self]);
        let axes = axes.into_axes(&self.shape()).map_err(fail)?;
        Self::in_wide([self], |[x]| x.norm_of(p, axes, keepdims)).map_err(fail)
    }

    fn norm_of(&self, p: f64, axes: Axes, keepdims: bool) -> Result<Self> {
        let reduced = |x: Self, op| x.reduce_axes(op, axes, keepdims);
        if p == 0.0 {
            let counts = self.compare_scalar(CompareOp::Ne, 0.0)?;
            return reduced(counts.to_dtype(self.dtype())?, ReduceOp::Sum);
        }
        let magnitude = self.abs()?;
        if p == f64::INFINITY {
            return reduced(magnitude, ReduceOp::Max);
        }
        if p == f64::NEG_INFINITY {
            return reduced(magnitude, ReduceOp::Min);
        }
        if p == 1.0 {
            return reduced(magnitude, ReduceOp::Sum);
        }
        let powers = if p < 2.0 && self.is_tracked() {
            // The power or its derivative has an infinite slope at 0.
            let is_zero = self.eq(0.0)?;
            let power_of_zero = if p > 0.0 { 0.0 } else { f64::INFINITY };
            let powers = magnitude.masked_fill(&is_zero, 1.0)?.pow(p)?;
            powers.masked_fill(&is_zero, power_of_zero)?
        } else {
            magnitude.pow(p)?
        };
        let total = reduced(powers, ReduceOp::Sum)?;
        // The root has an infinite slope at 0; PyTorch gives a zero vector the gradient 0.
        let is_zero = total.eq(0.0)?;
        let safe = total.masked_fill(&is_zero, 1.0)?;
        let root = if p == 2.0 { safe.sqrt()? } else { safe.pow(1.0 / p)? };
        root.masked_fill(&is_zero, if p > 0.0 { 0.0 } else { f64::INFINITY })
    }

    /// The cosine of the angle between two tensors along an axis, `Σ x y / (max(‖x‖, eps) · max(‖y‖, eps))`; shapes
    /// broadcast first. PyTorch's defaults are axis 1 and an `eps` of 1e-8. Where a norm is below `eps`, its gradient
    /// is computed as if it were not limited, as in PyTorch.
    ///
    /// # Errors
    /// When the shapes do not broadcast, the axis is out of range, the dtype is not a float, or the devices differ.
    pub fn cosine_similarity(&self, other: &Self, axis: isize, eps: f64) -> Result<Self> {
        let fail = |e| context(e, "cosine_similarity", &[self, other]);
        self.check_pair(other).map_err(fail)?;
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is_float() {
            return Err(fail(
                Error::dtype(format!("{dtype} is no float")).with_hint("convert it with to_dtype"),
            ));
        }
        let shape = self.shape().broadcast(&other.shape()).map_err(fail)?;
        axis.into_axes(&shape).map_err(fail)?;
        let unit = |x: &Self| {
            let x = x.expand(shape)?;
            let norm = x.norm_keepdim(2.0, axis)?;
            let limited = norm.detach().clamp(Some(eps), None)?;
            x.div(&norm.add(&limited.sub(norm.detach())?)?)
        };
        let (a, b) = (self.cast_cow(dtype)?, other.cast_cow(dtype)?);
        Self::in_wide([&*a, &*b], |[a, b]| unit(a)?.mul(&unit(b)?)?.sum(axis)).map_err(fail)
    }
}
