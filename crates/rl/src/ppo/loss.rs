//! The loss of PPO.

use polygrad_nn::distributions::Distribution;
use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor, no_grad};

use crate::{Policy, PolicyOutput, PolicyState};

/// Steps on which a policy is trained: `[T, N]` in the order in which they happened or, for a policy without memory,
/// `[N]` in any order.
pub struct PpoBatch<B: Backend = AnyBackend> {
    /// `[T, N, …]` or `[N, …]`, like everything except the state.
    pub observations: Tensor<B>,
    /// The numbers of each action, in the axis after the steps.
    pub actions: Tensor<B>,
    /// The allowed actions, bool, with one entry for each output of the policy in each step. `None` allows all.
    pub masks: Option<Tensor<B>>,
    /// The logarithm of the probability of each action when it was chosen.
    pub log_probs: Tensor<B>,
    /// The advantage of each action: its value beyond the expected one.
    pub advantages: Tensor<B>,
    /// The targets of the values.
    pub returns: Tensor<B>,
    /// The values when the actions were chosen.
    pub values: Tensor<B>,
    /// For `T` steps: a tensor that is nonzero for an observation that is the first of its episode, `[T, N]`, and the
    /// state before the first step.
    pub sequence: Option<(Tensor<B>, PolicyState<B>)>,
}

impl<B: Backend> PpoBatch<B> {
    /// The policy's output for the observations.
    pub(super) fn answer(&self, policy: &(impl Policy<B> + ?Sized)) -> Result<PolicyOutput<B>> {
        match &self.sequence {
            Some((starts, state)) => policy.unroll(&self.observations, starts, state),
            None => policy.forward(&self.observations, &PolicyState::new(Vec::new())),
        }
    }
}

/// The weights of the parts of [`ppo_loss`]. Those that change are tensors of rank 0, so that a captured step receives
/// their new values.
pub struct PpoWeights<B: Backend = AnyBackend> {
    /// How far the ratio of probabilities may differ from 1 before it is clipped.
    pub clip: Tensor<B>,
    /// The weight of the entropy.
    pub entropy: Tensor<B>,
    /// The weight of the value loss.
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
    /// An estimate of the divergence from the policy that acted: the mean of `(r − 1) − ln r`, where `r` is the ratio
    /// of probabilities. Without a gradient.
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
/// Those of the policy; if shapes do not fit.
pub fn ppo_loss<B: Backend>(
    policy: &(impl Policy<B> + ?Sized),
    batch: &PpoBatch<B>,
    weights: &PpoWeights<B>,
) -> Result<PpoLosses<B>> {
    let output = batch.answer(policy)?;
    let predicted = output.value()?;
    let dtype = predicted.dtype();
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
    // If the clipped gain is the smaller one, it is constant and needs no gradient.
    let (clipped, is_clipped) = no_grad(|| {
        let within = ratio.maximum(&clip.neg()?.add(1.0)?)?.minimum(&clip.add(1.0)?)?;
        let clipped = advantages.mul(&within)?;
        Ok::<_, Error>((clipped.detach(), clipped.lt(&gain)?))
    })?;
    let policy = Tensor::where_(&is_clipped, &clipped, &gain)?.mean(())?.neg()?;

    let returns = as_computed(&batch.returns)?;
    let mut errors = predicted.sub(&returns)?.square()?;
    if weights.clip_value {
        // As above, except that a value within the bounds, up to rounding, is not constant.
        let (clipped, is_clipped) = no_grad(|| {
            let old = as_computed(&batch.values)?;
            let change = predicted.sub(&old)?;
            let within = change.maximum(&clip.neg()?)?.minimum(&clip)?;
            let clipped = old.add(&within)?.sub(&returns)?.square()?;
            let is_clipped = change.ne(&within)?.logical_and(&clipped.gt(&errors)?)?;
            Ok::<_, Error>((clipped.detach(), is_clipped))
        })?;
        errors = Tensor::where_(&is_clipped, &clipped, &errors)?;
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

/// Normalizes to mean 0 and sample standard deviation 1.
fn normalized<B: Backend>(advantages: &Tensor<B>) -> Result<Tensor<B>> {
    let centred = advantages.sub(&advantages.mean(())?)?;
    let var = centred
        .square()?
        .sum(())?
        .div((advantages.numel() as f64 - 1.0).max(1.0))?;
    centred.div(&var.sqrt()?.add(1e-8)?)
}
