//! Losses of imitation learning.

use polygrad_nn::Module;
use polygrad_nn::distributions::Distribution;
use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

use crate::{ActionParams, ActionSpace, ActorCritic, Policy, PolicyState};

/// The loss of behaviour cloning and its parts; all of rank 0.
pub struct BcLosses<B: Backend = AnyBackend> {
    /// `−mean log p(action) − ent_weight · entropy + l2_weight · ½ Σ weight²`.
    pub loss: Tensor<B>,
    /// The mean probability of the demonstrated actions; without a gradient.
    pub prob_true_act: Tensor<B>,
    /// The mean entropy; without a gradient.
    pub entropy: Tensor<B>,
}

/// The distance of a policy from demonstrated actions `[N, len]`, numbered as in policies, for observations `[N, …]`.
///
/// Source: the package imitation, `BehaviorCloningLossCalculator`.
///
/// # Errors
/// Those of the policy; if shapes do not fit, or an action is out of range.
pub fn bc_loss<B: Backend>(
    policy: &ActorCritic<B>,
    observations: &Tensor<B>,
    actions: &Tensor<B>,
    ent_weight: f64,
    l2_weight: f64,
) -> Result<BcLosses<B>> {
    let params = answer(policy, observations)?;
    let distribution = params.distribution(None)?;
    let log_prob = distribution.log_prob(&actions.to_dtype(params.output().dtype())?)?;
    let entropy = distribution.entropy()?.mean(())?;
    let mut loss = log_prob.mean(())?.neg()?.sub(&entropy.mul(ent_weight)?)?;
    if l2_weight > 0.0 {
        for param in policy.parameters() {
            loss = loss.add(&param.tensor().square()?.sum_all()?.mul(0.5 * l2_weight)?)?;
        }
    }
    Ok(BcLosses {
        loss,
        prob_true_act: log_prob.detach().exp()?.mean(())?,
        entropy: entropy.detach(),
    })
}

/// The distance of a policy from a teacher's answer to observations `[N, …]`: the mean divergence
/// `KL(teacher ‖ policy)`, rank 0. For a teacher with deterministic numbers, it is minus the mean logarithm of their
/// probability.
///
/// Source: Rusu et al., "Policy distillation" (2016).
///
/// # Errors
/// Those of the policy; if its actions differ from the teacher's.
pub fn distillation_loss<B: Backend>(
    policy: &ActorCritic<B>,
    observations: &Tensor<B>,
    teacher: &ActionParams<B>,
) -> Result<Tensor<B>> {
    let params = answer(policy, observations)?;
    if params.space() != teacher.space() {
        let text = format!(
            "the policy chooses among {:?}, its teacher among {:?}",
            params.space(),
            teacher.space()
        );
        return Err(Error::invalid(text).with_op("distillation"));
    }
    let own = params.distribution(None)?;
    match teacher {
        ActionParams::Deterministic(actions) => own.log_prob(actions)?.mean(())?.neg(),
        _ => teacher.distribution(None)?.kl_divergence(&own)?.mean(()),
    }
}

fn answer<B: Backend>(policy: &ActorCritic<B>, observations: &Tensor<B>) -> Result<ActionParams<B>> {
    Ok(policy.forward(observations, &PolicyState::new(Vec::new()))?.action)
}

/// The teacher's answer, from its outputs, which are divided by a temperature if they are logits, and its logarithms of
/// standard deviations if it has any.
pub(super) fn said<B: Backend>(
    space: &ActionSpace,
    output: &Tensor<B>,
    log_std: Option<&Tensor<B>>,
    temperature: f64,
) -> Result<ActionParams<B>> {
    let logits = || output.div(temperature);
    Ok(match (space, log_std) {
        (ActionSpace::Discrete(_), _) => ActionParams::Categorical(logits()?),
        (ActionSpace::MultiDiscrete(nvec), _) => ActionParams::MultiDiscrete(logits()?, nvec.as_slice().into()),
        (ActionSpace::MultiBinary(_), _) => ActionParams::Bernoulli(logits()?),
        (ActionSpace::Continuous(_), Some(log_std)) => ActionParams::Normal {
            mean: output.clone(),
            log_std: log_std.clone(),
        },
        (ActionSpace::Continuous(_), None) => ActionParams::Deterministic(output.clone()),
    })
}
