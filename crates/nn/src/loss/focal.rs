//! The focal loss.

use super::common::{check_option, elementwise};

elementwise! {
    /// Binary cross entropy of logits `x` against targets `y` in `[0, 1]`, in which easy elements count less: each is
    /// multiplied by `(1 − p)^gamma`, where `p = σ(x)` for `y = 1` and `1 − σ(x)` for `y = 0`, and by `alpha` for `y =
    /// 1` and `1 − alpha` for `y = 0`. For y between 0 and 1 both are interpolated linearly. As torchvision's
    /// `sigmoid_focal_loss`, whose default reduction is none.
    ///
    /// Source: Lin et al., "Focal loss for dense object detection" (2017).
    SigmoidFocalLoss, sigmoid_focal_loss(input, target);
    /// The weight of positive targets, in `[0, 1]`; negative to use no weights.
    alpha: f64 = 0.25;
    /// How strongly easy elements are discounted, at least 0; with 0 and no `alpha` this is `BCEWithLogitsLoss`.
    gamma: f64 = 2.0;
    |loss| {
        let op = "sigmoid_focal_loss";
        check_option(op, ("alpha", loss.alpha), loss.alpha <= 1.0, "at most 1")?;
        check_option(op, ("gamma", loss.gamma), loss.gamma >= 0.0 && loss.gamma.is_finite(), "0 or above")?;
        let other = (1.0 - target)?;
        // Each logarithm is computed separately, as in BCEWithLogitsLoss.
        let positive = input.neg()?.softplus(1.0, 40.0)?.mul(target)?;
        let mut losses = positive.add(&input.softplus(1.0, 40.0)?.mul(&other)?)?;
        if loss.gamma > 0.0 {
            // 1 − p, computed without subtracting numbers that are nearly 1.
            let wrong = input.neg()?.sigmoid()?.mul(target)?.add(&input.sigmoid()?.mul(&other)?)?;
            losses = losses.mul(&wrong.pow(loss.gamma)?)?;
        }
        match loss.alpha >= 0.0 {
            true => losses.mul(&((target * loss.alpha)? + (other * (1.0 - loss.alpha))?)?),
            false => Ok(losses),
        }
    }
}
