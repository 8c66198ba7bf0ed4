//! Losses between numbers.

use polygrad_tensor::{Backend, Result, Tensor};

use super::common::{check_option, elementwise};

elementwise! {
    /// `(x − y)²`.
    MSELoss, mse_loss(input, target);
    |loss| input.sub(target)?.square()
}

elementwise! {
    /// `|x − y|`.
    L1Loss, l1_loss(input, target);
    |loss| input.sub(target)?.abs()
}

elementwise! {
    /// `d² / 2` where `d = |x − y|` is below `delta`, else `delta · (d − delta / 2)`.
    ///
    /// Source: Huber, "Robust estimation of a location parameter" (1964).
    HuberLoss, huber_loss(input, target);
    /// Where the loss becomes linear, above 0.
    delta: f64 = 1.0;
    |loss| {
        check_option("huber_loss", ("delta", loss.delta), loss.delta > 0.0, "above 0")?;
        huber(&input.sub(target)?, loss.delta)
    }
}

elementwise! {
    /// `d² / (2 beta)` where `d = |x − y|` is below `beta`, else `d − beta / 2`; with `beta` 0 it is the [`L1Loss`].
    SmoothL1Loss, smooth_l1_loss(input, target);
    /// Where the loss becomes linear, at least 0.
    beta: f64 = 1.0;
    |loss| {
        check_option("smooth_l1_loss", ("beta", loss.beta), loss.beta >= 0.0, "0 or above")?;
        let d = input.sub(target)?;
        if loss.beta == 0.0 { d.abs() } else { huber(&d, loss.beta)? / loss.beta }
    }
}

/// `d² / 2` within `±delta`, `delta · (|d| − delta / 2)` outside.
fn huber<B: Backend>(difference: &Tensor<B>, delta: f64) -> Result<Tensor<B>> {
    // The square is of the difference itself, since its magnitude has no second derivative at 0.
    let magnitude = difference.abs()?;
    let far = magnitude.ge(delta)?;
    let outer = ((&magnitude - 0.5 * delta)? * delta)?;
    let inner = difference.masked_fill(&far, 0.0)?;
    Tensor::where_(&far, &outer, &(inner.square()? * 0.5)?)
}
