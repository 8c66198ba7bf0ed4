//! The Bernoulli distribution: yes or no.

use polygrad_tensor::{AnyBackend, Backend, Result, Tensor, no_grad};

use super::{Distribution, divergence, impossible, logits, must_fit};

/// An independent choice of 0 or 1 for each logit; values are floats of the logits' shape. As PyTorch's
/// `Bernoulli(logits=…)`; [`Independent`](super::Independent) sums over an axis.
#[derive(Clone, Debug)]
pub struct Bernoulli<B: Backend = AnyBackend> {
    logits: Tensor<B>,
}

impl<B: Backend> Bernoulli<B> {
    /// From logits, the logarithms of the odds.
    ///
    /// # Errors
    /// When the logits are integers.
    pub fn new(given: &Tensor<B>) -> Result<Self> {
        Ok(Self {
            logits: logits(given, None)?,
        })
    }

    /// As [`Bernoulli::new`], but always 0 where the mask (bool, of the logits' shape) is false.
    ///
    /// # Errors
    /// When the logits are integers, or the mask does not fit.
    pub fn masked(given: &Tensor<B>, mask: &Tensor<B>) -> Result<Self> {
        Ok(Self {
            logits: logits(given, Some(mask))?,
        })
    }

    /// The probabilities of 1.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn probs(&self) -> Result<Tensor<B>> {
        self.logits.sigmoid()
    }

    /// `ln(1 + e^logit)`: minus the log probability of 0.
    fn softplus(&self) -> Result<Tensor<B>> {
        self.logits.softplus(1.0, 40.0)
    }
}

impl<B: Backend> Distribution<B> for Bernoulli<B> {
    fn sample(&self) -> Result<Tensor<B>> {
        no_grad(|| {
            let drawn = Tensor::rand(self.logits.shape(), &self.logits.device())?;
            drawn.lt(&self.probs()?)?.to_dtype(self.logits.dtype())
        })
    }

    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>> {
        must_fit(value, &self.logits.dims())?;
        impossible(&self.logits.mul(value)?.sub(&self.softplus()?)?)
    }

    fn entropy(&self) -> Result<Tensor<B>> {
        self.softplus()?.sub(&self.logits.mul(&self.probs()?)?)
    }

    fn mode(&self) -> Result<Tensor<B>> {
        self.logits.detach().gt(0.0)?.to_dtype(self.logits.dtype())
    }

    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>> {
        let probs = self.probs()?;
        let apart = probs.mul(&self.logits.sub(&other.logits)?)?;
        divergence(
            &apart.sub(&self.softplus()?)?.add(&other.softplus()?)?,
            &probs,
            &other.logits,
        )
    }
}
