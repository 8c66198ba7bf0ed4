//! Policies that normalize their observations.

use polygrad_nn::{Buffer, Module};
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::{Policy, PolicyOutput, PolicyState};

/// Normalizes observations to a mean of 0 and a variance of 1, with statistics that were collected while a policy was
/// trained: `(x − mean) / √(var + 1e-8)`. If there is a bound, clips to between it and its negative.
///
/// Source: Gymnasium's `NormalizeObservation`; the bound is CleanRL's.
#[derive(Module)]
pub struct Normalizer<B: Backend = AnyBackend> {
    /// `[observation size]`.
    pub mean: Buffer<B>,
    /// `[observation size]`.
    pub var: Buffer<B>,
    clip: Option<f64>,
}

impl<B: Backend> Normalizer<B> {
    /// Starts with a mean of 0 and a variance of 1, for observations of `size` numbers.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(size: usize, clip: Option<f64>, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            mean: Buffer::new(&Tensor::zeros([size], device)?),
            var: Buffer::new(&Tensor::ones([size], device)?),
            clip,
        })
    }

    /// Replaces the statistics.
    ///
    /// # Errors
    /// If their number changes.
    pub fn set(&self, mean: &[f64], var: &[f64]) -> Result<()> {
        for (buffer, values) in [(&self.mean, mean), (&self.var, var)] {
            let old = buffer.tensor();
            if old.numel() != values.len() {
                let text = format!("{} numbers for observations of {}", values.len(), old.numel());
                return Err(Error::shape(text).with_op("Normalizer"));
            }
            let values: Vec<f32> = values.iter().map(|x| *x as f32).collect();
            buffer.set(&Tensor::from_vec(values, old.shape(), &old.device())?.to_dtype(old.dtype())?)?;
        }
        Ok(())
    }

    /// Normalizes observations `[…, size]`.
    ///
    /// # Errors
    /// If the observations have another size.
    pub fn forward(&self, observations: &Tensor<B>) -> Result<Tensor<B>> {
        let (mean, var) = (self.mean.tensor(), self.var.tensor());
        let std = (var + 1e-8)?.sqrt()?;
        let x = observations.to_dtype(mean.dtype())?.sub(&mean)?.div(&std)?;
        match self.clip {
            None => Ok(x),
            Some(bound) => x.clamp(Some(-bound), Some(bound)),
        }
    }
}

/// A policy behind a [`Normalizer`].
#[derive(Module)]
pub struct NormalizedPolicy<P, B: Backend = AnyBackend> {
    /// Normalizes the observations.
    pub normalizer: Normalizer<B>,
    /// Receives the normalized observations.
    pub policy: P,
}

impl<B: Backend, P: Policy<B>> Policy<B> for NormalizedPolicy<P, B> {
    fn initial_state(&self, batch: usize) -> Result<PolicyState<B>> {
        self.policy.initial_state(batch)
    }

    fn forward(&self, observations: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        self.policy.forward(&self.normalizer.forward(observations)?, state)
    }

    fn unroll(&self, observations: &Tensor<B>, starts: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        self.policy
            .unroll(&self.normalizer.forward(observations)?, starts, state)
    }
}
