//! The Kullback-Leibler divergence.

use polygrad_tensor::{Backend, Error, Result, Tensor};

use super::{Reduction, check_same_shape};

/// The Kullback-Leibler divergence of a distribution given as log probabilities `x` from a target `y`, element by element: `y · (ln y − x)`, which
/// is 0 where `y` is 0, or `e^y · (y − x)` where the target is given as log probabilities too.
///
/// The mean over all elements, PyTorch's default, is not the divergence itself: [`KLDivLoss::batch_mean`] is.
///
/// Source: Kullback and Leibler, "On information and sufficiency" (1951).
#[derive(Clone, Copy, Debug, Default)]
pub struct KLDivLoss {
    log_target: bool,
    batch_mean: bool,
    reduction: Reduction,
}

impl KLDivLoss {
    /// Of a target of probabilities, the mean over all elements.
    pub const fn new() -> Self {
        Self {
            log_target: false,
            batch_mean: false,
            reduction: Reduction::Mean,
        }
    }

    /// Whether the target holds log probabilities. Default: false.
    #[must_use]
    pub const fn log_target(mut self, log_target: bool) -> Self {
        self.log_target = log_target;
        self
    }

    /// What becomes of the elements' terms. Default: the mean.
    #[must_use]
    pub const fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self.batch_mean = false;
        self
    }

    /// The sum of all terms, divided by the extent of the first axis: PyTorch's reduction `batchmean`.
    #[must_use]
    pub const fn batch_mean(mut self) -> Self {
        self.batch_mean = true;
        self
    }

    /// The divergence of log probabilities from a target of the same shape.
    ///
    /// # Errors
    /// When shapes differ, dtype or device do not fit, or the mean over a batch is asked of a scalar or an empty batch.
    pub fn forward<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        check_same_shape("kl_div", input, target)?;
        Tensor::in_wide([input, target], |[x, y]| self.of(x, y))
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
            _ => Err(Error::shape("there is no batch to take a mean over")
                .with_op("kl_div")
                .with_operands([(input.shape(), input.dtype())])),
        }
    }
}

/// [`KLDivLoss`] of a target of probabilities.
///
/// # Errors
/// As [`KLDivLoss::forward`].
pub fn kl_div<B: Backend>(input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
    KLDivLoss::new().forward(input, target)
}
