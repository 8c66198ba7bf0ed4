//! Losses between numbers.

use polygrad_tensor::{Backend, Error, Result, Tensor};

use super::{Reduction, check_same_shape};

/// `(x − y)²`.
///
/// # Errors
/// When the shapes differ, or dtype or device do not fit.
pub fn mse_loss<B: Backend>(input: &Tensor<B>, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
    check_same_shape("mse_loss", input, target)?;
    Tensor::in_wide([input, target], |[x, y]| reduction.apply(x.sub(y)?.square()?))
}

/// `|x − y|`.
///
/// # Errors
/// As [`mse_loss`].
pub fn l1_loss<B: Backend>(input: &Tensor<B>, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
    check_same_shape("l1_loss", input, target)?;
    Tensor::in_wide([input, target], |[x, y]| reduction.apply(x.sub(y)?.abs()?))
}

/// `d² / 2` where `d = |x − y|` is below `delta`, else `delta · (d − delta / 2)`. PyTorch's default delta is 1.
///
/// Source: Huber, "Robust estimation of a location parameter" (1964).
///
/// # Errors
/// As [`mse_loss`]; and when `delta` is not positive.
pub fn huber_loss<B: Backend>(
    input: &Tensor<B>,
    target: &Tensor<B>,
    delta: f64,
    reduction: Reduction,
) -> Result<Tensor<B>> {
    check_same_shape("huber_loss", input, target)?;
    if delta.is_nan() || delta <= 0.0 {
        return Err(Error::invalid(format!("delta = {delta} must be above 0")).with_op("huber_loss"));
    }
    Tensor::in_wide([input, target], |[x, y]| reduction.apply(huber(&x.sub(y)?, delta)?))
}

/// `d² / (2 beta)` where `d = |x − y|` is below `beta`, else `d − beta / 2`; for `beta` 0 the [`l1_loss`]. PyTorch's default beta is 1.
///
/// # Errors
/// As [`mse_loss`]; and when `beta` is negative.
pub fn smooth_l1_loss<B: Backend>(
    input: &Tensor<B>,
    target: &Tensor<B>,
    beta: f64,
    reduction: Reduction,
) -> Result<Tensor<B>> {
    check_same_shape("smooth_l1_loss", input, target)?;
    if beta.is_nan() || beta < 0.0 {
        return Err(Error::invalid(format!("beta = {beta} must be 0 or above")).with_op("smooth_l1_loss"));
    }
    if beta == 0.0 {
        return l1_loss(input, target, reduction);
    }
    Tensor::in_wide([input, target], |[x, y]| {
        reduction.apply((huber(&x.sub(y)?, beta)? / beta)?)
    })
}

/// `d² / 2` within `±delta`, `delta · (|d| − delta / 2)` outside.
fn huber<B: Backend>(difference: &Tensor<B>, delta: f64) -> Result<Tensor<B>> {
    // The square is of the difference, not of its magnitude, which has no second derivative at 0.
    let magnitude = difference.abs()?;
    let far = magnitude.ge_scalar(delta)?;
    let outer = ((&magnitude - 0.5 * delta)? * delta)?;
    let inner = difference.masked_fill(&far, 0.0)?;
    Tensor::where_(&far, &outer, &(inner.square()? * 0.5)?)
}
