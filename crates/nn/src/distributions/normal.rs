//! The normal distribution, and its squashing by tanh.

use std::f64::consts::{LN_2, TAU};

use polygrad_tensor::{AnyBackend, Backend, DType, Error, Result, Tensor, no_grad};

use super::{Distribution, must_be_float};

/// A normal distribution for each number. As PyTorch's `Normal(loc, scale)`; [`Independent`](super::Independent) sums
/// over an axis.
#[derive(Clone, Debug)]
pub struct Normal<B: Backend = AnyBackend> {
    loc: Tensor<B>,
    scale: Tensor<B>,
    log_scale: Tensor<B>,
}

impl<B: Backend> Normal<B> {
    /// From means and standard deviations, which broadcast; standard deviations that are not above 0 give NaN.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or a dtype is not a float.
    pub fn new(loc: &Tensor<B>, scale: &Tensor<B>) -> Result<Self> {
        Self::of(loc, scale.clone(), scale.log()?)
    }

    /// From means and the logarithms of standard deviations, which broadcast.
    ///
    /// # Errors
    /// As [`Normal::new`].
    pub fn from_log_std(loc: &Tensor<B>, log_std: &Tensor<B>) -> Result<Self> {
        Self::of(loc, log_std.exp()?, log_std.clone())
    }

    fn of(loc: &Tensor<B>, scale: Tensor<B>, log_scale: Tensor<B>) -> Result<Self> {
        must_be_float(loc, "means")?;
        must_be_float(&scale, "standard deviations")?;
        let shape = loc.shape().broadcast(&scale.shape()).map_err(|e| e.with_op("Normal"))?;
        Ok(Self {
            loc: loc.expand(shape)?,
            scale: scale.expand(shape)?,
            log_scale: log_scale.expand(shape)?,
        })
    }

    /// The means.
    pub fn loc(&self) -> &Tensor<B> {
        &self.loc
    }

    /// The standard deviations.
    pub fn scale(&self) -> &Tensor<B> {
        &self.scale
    }

    /// A draw with gradients for the parameters: the mean plus the standard deviation times a number that
    /// does not depend on them.
    ///
    /// Source: Kingma and Welling, "Auto-encoding variational Bayes" (2013).
    ///
    /// # Errors
    /// When memory runs out.
    pub fn rsample(&self) -> Result<Tensor<B>> {
        let noise = Tensor::randn(self.loc.shape(), (&self.loc.device(), self.loc.dtype()))?;
        self.loc.add(&self.scale.mul(&noise)?)
    }
}

impl<B: Backend> Distribution<B> for Normal<B> {
    fn sample(&self) -> Result<Tensor<B>> {
        no_grad(|| self.rsample())
    }

    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>> {
        let apart = value.sub(&self.loc)?.div(&self.scale)?.square()?.mul(-0.5)?;
        apart.sub(&self.log_scale)?.sub(0.5 * TAU.ln())
    }

    fn entropy(&self) -> Result<Tensor<B>> {
        self.log_scale.add(0.5 + 0.5 * TAU.ln())
    }

    fn mode(&self) -> Result<Tensor<B>> {
        Ok(self.loc.detach())
    }

    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>> {
        let ratio = self.scale.div(&other.scale)?.square()?;
        let apart = self.loc.sub(&other.loc)?.div(&other.scale)?.square()?;
        let logs = other.log_scale.sub(&self.log_scale)?;
        ratio.add(&apart)?.sub(1.0)?.mul(0.5)?.add(&logs)
    }
}

/// A normal number squashed into (−1, 1) by tanh, independently for each number. As PyTorch's `TransformedDistribution`
/// of `Normal` and `TanhTransform`.
///
/// Source: Haarnoja et al., "Soft actor-critic: off-policy maximum entropy deep reinforcement learning with a
/// stochastic actor" (2018), appendix C.
#[derive(Clone, Debug)]
pub struct TanhNormal<B: Backend = AnyBackend> {
    base: Normal<B>,
}

impl<B: Backend> TanhNormal<B> {
    /// From the distribution before tanh.
    pub fn new(base: Normal<B>) -> Self {
        Self { base }
    }

    /// The distribution before tanh.
    pub fn base(&self) -> &Normal<B> {
        &self.base
    }

    /// A draw with its log probability, both with gradients for the parameters. The log probability is accurate however
    /// close the draw is to −1 or 1, where [`Distribution::log_prob`] of the draw loses digits.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn rsample_with_log_prob(&self) -> Result<(Tensor<B>, Tensor<B>)> {
        let x = self.base.rsample()?;
        Ok((x.tanh()?, self.log_prob_before(&x)?))
    }

    /// The log probability of `tanh(x)`: that of x less `ln(1 - tanh²(x)) = 2 (ln 2 - x - softplus(-2x))`.
    fn log_prob_before(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let slope = x.add(&x.mul(-2.0)?.softplus(1.0, 40.0)?)?.mul(2.0)?;
        self.base.log_prob(x)?.add(&slope)?.sub(2.0 * LN_2)
    }
}

impl<B: Backend> Distribution<B> for TanhNormal<B> {
    fn sample(&self) -> Result<Tensor<B>> {
        no_grad(|| self.base.rsample()?.tanh())
    }

    /// For values from −1 to 1, clamped to the largest number below 1 that the dtype has.
    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>> {
        let most = match value.dtype() {
            DType::F64 => 1.0 - f64::EPSILON / 2.0,
            DType::F16 => 1.0 - 0.5_f64.powi(11),
            DType::BF16 => 1.0 - 0.5_f64.powi(8),
            _ => 1.0 - f64::from(f32::EPSILON) / 2.0,
        };
        let value = value.clamp(Some(-most), Some(most))?;
        let x = value.log1p()?.sub(&value.neg()?.log1p()?)?.mul(0.5)?;
        self.log_prob_before(&x)
    }

    fn entropy(&self) -> Result<Tensor<B>> {
        Err(
            Error::unsupported("the entropy of a squashed normal distribution has no formula")
                .with_op("entropy")
                .with_hint("take minus the log probability of draws: rsample_with_log_prob"),
        )
    }

    /// Tanh of the mode before tanh. The density of the squashed numbers may be highest elsewhere.
    fn mode(&self) -> Result<Tensor<B>> {
        self.base.mode()?.tanh()
    }

    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>> {
        self.base.kl_divergence(&other.base)
    }
}
