//! Negative log likelihoods of distributions of numbers.

use std::f64::consts::PI;

use polygrad_tensor::{Backend, Result, Tensor};

use super::common::{check_option, check_same_shape, elementwise, loss, misfit};

elementwise! {
    /// The negative log likelihood of counts `y` under Poisson distributions: `e^x − y · x` if `x` is the logarithm of
    /// their means, or `x − y · ln(x + eps)` if `x` is the mean itself.
    PoissonNLLLoss, poisson_nll_loss(input, target);
    /// Whether the input is the logarithm of the mean.
    log_input: bool = true;
    /// Whether to add Stirling's approximation of `ln y!`, `y ln y − y + ln(2πy) / 2`, where `y` is above 1.
    full: bool = false;
    /// Added to the mean before taking its logarithm.
    eps: f64 = 1e-8;
    |loss| {
        let losses = if loss.log_input {
            input.exp()?.sub(&target.mul(input)?)?
        } else {
            input.sub(&target.mul(&(input + loss.eps)?.log()?)?)?
        };
        if loss.full {
            let few = target.le(1.0)?;
            let y = target.masked_fill(&few, 1.0)?;
            let stirling = y.mul(&y.log()?)?.sub(&y)? + ((y * (2.0 * PI))?.log()? * 0.5)?;
            losses + stirling?.masked_fill(&few, 0.0)?
        } else {
            Ok(losses)
        }
    }
}

loss! {
    /// The negative log likelihood of a target `y` under normal distributions with means `x` and variances `v`: `(ln v
    /// + (x − y)² / v) / 2`. As in PyTorch, a variance below `eps` counts as `eps`, but the gradient is computed as if
    /// it were not limited.
    ///
    /// Source: Nix and Weigend, "Estimating the mean and variance of the target probability distribution" (1994).
    #[derive(Clone, Copy, Debug)]
    GaussianNLLLoss, gaussian_nll_loss(input, target, var);
    /// Whether to add the constant `ln(2π) / 2`.
    full: bool = false;
    /// The least variance, above 0.
    eps: f64 = 1e-6;
}

impl GaussianNLLLoss {
    /// The loss of means against a target of the same shape. The variance also has this shape, except that the last
    /// axis may be 1 or absent.
    ///
    /// # Errors
    /// When shapes, dtype or device do not fit, or `eps` is not above 0.
    pub fn forward<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>, var: &Tensor<B>) -> Result<Tensor<B>> {
        let op = "gaussian_nll_loss";
        check_same_shape(op, &[input, target])?;
        check_option(op, ("eps", self.eps), self.eps > 0.0, "above 0")?;
        let (dims, of_var) = (input.dims(), var.dims());
        let shared = match dims.split_last() {
            Some((_, rest)) => of_var == rest || of_var.split_last() == Some((&1, rest)),
            None => false,
        };
        if of_var != dims && !shared {
            let text = "the variance has the input's shape, or one for each vector of its last axis";
            return Err(misfit(op, &[input, target, var], text));
        }
        Tensor::in_wide([input, target, var], |[x, y, var]| {
            let var = if of_var.len() < dims.len() {
                var.unsqueeze(-1)?
            } else {
                var.clone()
            };
            let raised = (&var + (self.eps - var.detach())?)?;
            let var = Tensor::where_(&var.lt(self.eps)?, &raised, &var)?;
            let squares = x.sub(y)?.square()?;
            let mut losses = ((var.log()? + squares.div(&var)?)? * 0.5)?;
            if self.full {
                losses = (losses + 0.5 * (2.0 * PI).ln())?;
            }
            self.reduction.apply(losses)
        })
    }
}
