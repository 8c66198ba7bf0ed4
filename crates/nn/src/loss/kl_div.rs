//! The Kullback-Leibler divergence.

use polygrad_tensor::{Backend, Result, Tensor};

use super::common::{check_same_shape, loss, misfit};

loss! {
    /// The elementwise Kullback-Leibler divergence of a distribution, given as log probabilities `x`, from a target
    /// `y`: `y · (ln y − x)`, which is 0 where `y` is 0, or `e^y · (y − x)` if the target is also given as log
    /// probabilities.
    ///
    /// The mean over all elements, PyTorch's default, is not the divergence itself: [`KLDivLoss::batch_mean`] is.
    ///
    /// Source: Kullback and Leibler, "On information and sufficiency" (1951).
    #[derive(Clone, Copy, Debug)]
    KLDivLoss, kl_div(input, target);
    /// Whether the target holds log probabilities.
    log_target: bool = false;
    /// Whether the sum of all terms is divided by the extent of the first axis, regardless of the reduction: PyTorch's
    /// reduction `batchmean`.
    batch_mean: bool = false;
}

impl KLDivLoss {
    /// The divergence of log probabilities from a target of the same shape.
    ///
    /// # Errors
    /// When shapes differ, dtype or device do not fit, or the batch mean is requested for a scalar or an empty batch.
    pub fn forward<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        check_same_shape("kl_div", &[input, target])?;
        Tensor::in_full([input, target], |[x, y]| self.of(x, y))
    }

    fn of<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let terms = if self.log_target {
            target.exp()?.mul(&target.sub(input)?)?
        } else {
            let log = target.masked_fill(&target.eq(0.0)?, 1.0)?.log()?;
            target.mul(&log.sub(input)?)?
        };
        if !self.batch_mean {
            return self.reduction.apply(terms);
        }
        match input.dims().first() {
            Some(&batch) if batch > 0 => terms.sum_all()? / batch as f64,
            _ => Err(misfit("kl_div", &[input], "there is no batch to take a mean over")),
        }
    }
}
