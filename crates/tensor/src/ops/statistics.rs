//! Reductions made of others.

use polygrad_core::{Backend, CompareOp, Error, Result, Scalar};

use super::{IntoAxes, context};
use crate::Tensor;

impl<B: Backend> Tensor<B> {
    /// Variance over axes, divided by the number of elements less `correction` (PyTorch's default is 1, the unbiased estimate), or by 0
    /// where that is negative; NaN over nothing.
    /// PyTorch's `var`; here [`Tensor::var`] makes a named leaf.
    ///
    /// # Errors
    /// When an axis is out of range or given twice, or the dtype is no float.
    #[doc(alias = "var")]
    pub fn variance(&self, axes: impl IntoAxes, correction: impl Into<Scalar>, keepdims: bool) -> Result<Self> {
        let shape = self.shape();
        let axes = axes.into_axes(&shape).map_err(|e| context(e, "variance", &[self]))?;
        let list: Vec<isize> = axes.iter().map(|axis| axis as isize).collect();
        let count: usize = axes.iter().map(|axis| shape[axis]).product();
        let centred = match count {
            0 => self.clone(),
            _ => self.sub(&self.mean(&list, true)?)?,
        };
        // Of no more elements than the correction: 0 / 0 or a division by 0, as PyTorch has it.
        let divisor = (count as f64 - correction.into().to_f64()).max(0.0);
        let total = centred.square()?.sum(&list, keepdims)?;
        total.binary_scalar(polygrad_core::BinaryOp::Div, divisor, false)
    }

    /// Standard deviation: the root of [`Tensor::variance`].
    ///
    /// # Errors
    /// As [`Tensor::variance`].
    pub fn std(&self, axes: impl IntoAxes, correction: impl Into<Scalar>, keepdims: bool) -> Result<Self> {
        self.variance(axes, correction, keepdims)?.sqrt()
    }

    /// `ln Σ e^x` over axes, without overflow; minus infinity over nothing.
    ///
    /// # Errors
    /// When an axis is out of range or given twice.
    pub fn logsumexp(&self, axes: impl IntoAxes, keepdims: bool) -> Result<Self> {
        let x = self.cast_cow(self.dtype().to_float())?;
        let axes = axes
            .into_axes(&x.shape())
            .map_err(|e| context(e, "logsumexp", &[self]))?;
        let list: Vec<isize> = axes.iter().map(|axis| axis as isize).collect();
        if axes.iter().any(|axis| x.shape()[axis] == 0) {
            return x.sum(&list, keepdims)?.log();
        }
        let top = x.detach().amax(&list, true)?;
        // An infinite maximum must not be subtracted from itself.
        let zero = top.zeros_like()?;
        let top = Self::where_(&top.isfinite()?, &top, &zero)?;
        let total = x.sub(&top)?.exp()?.sum(&list, true)?.log()?.add(&top)?;
        if keepdims {
            return Ok(total);
        }
        total.reshape(x.shape().reduced(axes, false))
    }

    /// The p-norm over axes: `(Σ |x|^p)^(1/p)`; the largest `|x|` for infinity, the smallest for minus infinity, the number of elements
    /// that are not 0 for 0.
    ///
    /// # Errors
    /// When an axis is out of range or given twice, or `p` is NaN.
    pub fn norm(&self, p: f64, axes: impl IntoAxes, keepdims: bool) -> Result<Self> {
        if p.is_nan() {
            return Err(context(Error::invalid("the order of the norm is NaN"), "norm", &[self]));
        }
        if p == 0.0 {
            return self
                .compare_scalar(CompareOp::Ne, 0.0)?
                .to_dtype(self.dtype())?
                .sum(axes, keepdims);
        }
        let magnitude = self.abs()?;
        if p == f64::INFINITY {
            return magnitude.amax(axes, keepdims);
        }
        if p == f64::NEG_INFINITY {
            return magnitude.amin(axes, keepdims);
        }
        if p == 1.0 {
            return magnitude.sum(axes, keepdims);
        }
        let axes = axes.into_axes(&self.shape()).map_err(|e| context(e, "norm", &[self]))?;
        let list: Vec<isize> = axes.iter().map(|axis| axis as isize).collect();
        let total = magnitude.pow_scalar(p)?.sum(&list, keepdims)?;
        // The root has an infinite slope at 0; PyTorch gives a zero vector the gradient 0.
        let is_zero = total.eq_scalar(0.0)?;
        let safe = total.masked_fill(&is_zero, 1.0)?;
        let root = if p == 2.0 {
            safe.sqrt()?
        } else {
            safe.pow_scalar(1.0 / p)?
        };
        root.masked_fill(&is_zero, if p > 0.0 { 0.0 } else { f64::INFINITY })
    }

    /// The cosine of the angle between two tensors along an axis, `Σ x y / (max(‖x‖, eps) · max(‖y‖, eps))`; shapes broadcast first. PyTorch's
    /// defaults are axis 1 and an `eps` of 1e-8. Where a norm is below `eps`, its gradient is taken as if it were not limited, as PyTorch has it.
    ///
    /// # Errors
    /// When the shapes do not broadcast, the axis is out of range, the dtype is no float, or the devices differ.
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
            let x = x.cast_cow(dtype)?.expand(shape)?;
            let norm = x.norm(2.0, axis, true)?;
            let limited = norm.detach().clamp(Some(eps), None)?;
            x.div(&norm.add(&limited.sub(&norm.detach())?)?)
        };
        unit(self)?.mul(&unit(other)?)?.sum(axis, false).map_err(fail)
    }
}
