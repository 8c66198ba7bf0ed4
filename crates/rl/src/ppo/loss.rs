//! The loss of PPO.

use polygrad_nn::distributions::Distribution;
use polygrad_tensor::{AnyBackend, Backend, Result, Tensor, no_grad};

use crate::{Policy, PolicyState};

/// Steps that a policy is trained on, `[T, N]` of them; `T` is 1 for a policy without memory.
pub struct PpoBatch<B: Backend = AnyBackend> {
    /// `[T, N, …]`.
    pub observations: Tensor<B>,
    /// `[T, N, len]`.
    pub actions: Tensor<B>,
    /// Which actions were allowed, bool `[T, N, outputs]`; all without it.
    pub masks: Option<Tensor<B>>,
    /// The logarithm of the probability of each action when it was chosen, `[T, N]`.
    pub log_probs: Tensor<B>,
    /// `[T, N]`.
    pub advantages: Tensor<B>,
    /// What values are to become, `[T, N]`.
    pub returns: Tensor<B>,
    /// The values when the actions were chosen, `[T, N]`.
    pub values: Tensor<B>,
    /// Not 0 where an observation is the first of its episode, `[T, N]`.
    pub starts: Tensor<B>,
    /// The state before the first step.
    pub state: PolicyState<B>,
}

/// What [`ppo_loss`] weighs its parts by. Those that change are tensors of rank 0, so that a captured step sees them change.
pub struct PpoWeights<B: Backend = AnyBackend> {
    /// How far from 1 the ratio of probabilities counts.
    pub clip: Tensor<B>,
    /// Of the entropy.
    pub entropy: Tensor<B>,
    /// Of the value loss.
    pub value: f64,
    /// Whether values are clipped too.
    pub clip_value: bool,
    /// Whether advantages are normalized over the batch.
    pub normalize_advantages: bool,
}

/// The loss of PPO and its parts, tensors of rank 0.
pub struct PpoLosses<B: Backend = AnyBackend> {
    /// `policy − entropy weight · entropy + value weight · value`.
    pub loss: Tensor<B>,
    /// The clipped surrogate.
    pub policy: Tensor<B>,
    /// Half the mean squared error of the values.
    pub value: Tensor<B>,
    /// The mean entropy.
    pub entropy: Tensor<B>,
    /// An estimate of the divergence from the policy that has acted: the mean of `(r − 1) − ln r`, `r` being the ratio of probabilities. Without a gradient.
    ///
    /// Source: Schulman, "Approximating KL divergence" (2020).
    pub approx_kl: Tensor<B>,
    /// The share of the ratios that are clipped. Without a gradient.
    pub clip_fraction: Tensor<B>,
}

/// The loss of PPO, as CleanRL computes it.
///
/// Source: Schulman et al., "Proximal policy optimization algorithms" (2017).
///
/// # Errors
/// Those of the policy; when shapes do not fit.
pub fn ppo_loss<B: Backend>(
    policy: &(impl Policy<B> + ?Sized),
    batch: &PpoBatch<B>,
    weights: &PpoWeights<B>,
) -> Result<PpoLosses<B>> {
    let output = policy.unroll(&batch.observations, &batch.starts, &batch.state)?;
    let dtype = output.value.dtype();
    let as_computed = |x: &Tensor<B>| x.to_dtype(dtype);
    let distribution = output.action.distribution(batch.masks.as_ref())?;
    let (clip, entropy_weight) = (as_computed(&weights.clip)?, as_computed(&weights.entropy)?);

    let log_probs = distribution.log_prob(&as_computed(&batch.actions)?)?;
    let log_ratio = log_probs.sub(&as_computed(&batch.log_probs)?)?;
    let ratio = log_ratio.exp()?;
    let (approx_kl, clip_fraction) = no_grad(|| -> Result<_> {
        let (log_ratio, ratio) = (log_ratio.detach(), ratio.detach());
        let apart = ratio.sub(1.0)?;
        let clipped = apart.abs()?.gt(&clip)?.to_dtype(dtype)?;
        Ok((apart.sub(&log_ratio)?.mean(())?, clipped.mean(())?))
    })?;

    let mut advantages = as_computed(&batch.advantages)?;
    if weights.normalize_advantages {
        advantages = normalized(&advantages)?;
    }
    let gain = advantages.mul(&ratio)?;
    let (least, most) = (clip.neg()?.add(1.0)?, clip.add(1.0)?);
    let clipped_gain = advantages.mul(&ratio.clamp(Some(&least), Some(&most))?)?;
    let policy = gain.minimum(&clipped_gain)?.mean(())?.neg()?;

    let returns = as_computed(&batch.returns)?;
    let mut errors = output.value.sub(&returns)?.square()?;
    if weights.clip_value {
        let old = as_computed(&batch.values)?;
        let change = output.value.sub(&old)?.clamp(Some(&clip.neg()?), Some(&clip))?;
        errors = errors.maximum(&old.add(&change)?.sub(&returns)?.square()?)?;
    }
    let value = errors.mean(())?.mul(0.5)?;
    let entropy = distribution.entropy()?.mean(())?;
    let loss = policy
        .sub(&entropy.mul(&entropy_weight)?)?
        .add(&value.mul(weights.value)?)?;
    Ok(PpoLosses {
        loss,
        policy,
        value,
        entropy,
        approx_kl,
        clip_fraction,
    })
}

/// With a mean of 0 and a standard deviation of 1, that of a sample.
fn normalized<B: Backend>(advantages: &Tensor<B>) -> Result<Tensor<B>> {
    let centred = advantages.sub(&advantages.mean(())?)?;
    let var = centred
        .square()?
        .sum(())?
        .div((advantages.numel() as f64 - 1.0).max(1.0))?;
    centred.div(&var.sqrt()?.add(1e-8)?)
}
