//! The loss of DQN.

use polygrad_tensor::{AnyBackend, Backend, DType, Result, Tensor, no_grad};

use crate::QNetwork;

/// `N` transitions that a network is trained on.
pub struct DqnBatch<B: Backend = AnyBackend> {
    /// `[N, …]`.
    pub observations: Tensor<B>,
    /// The indices of the actions, of any dtype: `[N]` or `[N, 1]`.
    pub actions: Tensor<B>,
    /// `[N]`, as are all fields below except `next_observations`.
    pub rewards: Tensor<B>,
    /// The factor of the next observation's value: 0 if the episode ended there.
    pub discounts: Tensor<B>,
    /// `[N, …]`.
    pub next_observations: Tensor<B>,
    /// The weight of each transition in the loss.
    pub weights: Tensor<B>,
}

/// Variants of [`dqn_loss`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DqnVariant {
    /// Whether the network chooses the action whose value its target estimates for the next observation.
    pub double: bool,
    /// Whether the loss is Huber's: half the squared error below 1 and the absolute error less ½ above, not the squared
    /// error.
    pub huber: bool,
}

/// The loss of DQN and its parts.
pub struct DqnLosses<B: Backend = AnyBackend> {
    /// The weighted mean of the squared errors, or of Huber's errors with `huber`; rank 0.
    pub loss: Tensor<B>,
    /// The differences between the actions' values and their targets, `[N]`; without a gradient.
    pub errors: Tensor<B>,
    /// The mean value of the actions, rank 0; without a gradient.
    pub value: Tensor<B>,
}

/// The temporal-difference loss of a network: it compares the values of the actions with
/// `reward + discount · value of the next observation`, where the target network gives that value.
///
/// Sources: Mnih et al., "Human-level control through deep reinforcement learning" (2015); van Hasselt et al., "Deep
/// reinforcement learning with double Q-learning" (2016).
///
/// # Errors
/// Those of the networks; if shapes do not fit, or an action is out of range.
pub fn dqn_loss<B: Backend>(
    network: &QNetwork<B>,
    target: &QNetwork<B>,
    batch: &DqnBatch<B>,
    variant: DqnVariant,
) -> Result<DqnLosses<B>> {
    let values = network.values(&batch.observations)?;
    let dtype = values.dtype();
    let as_computed = |x: &Tensor<B>| x.to_dtype(dtype);
    let actions = batch.actions.to_dtype(DType::I64)?.reshape([-1, 1])?;
    let value = values.gather(1, &actions)?.squeeze(1)?;
    let wanted = no_grad(|| -> Result<_> {
        let next = target.values(&batch.next_observations)?;
        let next = match variant.double {
            true => {
                let best = network.values(&batch.next_observations)?.argmax_keepdim(1)?;
                next.gather(1, &best)?.squeeze(1)?
            }
            false => next.amax(1)?,
        };
        next.mul(&as_computed(&batch.discounts)?)?
            .add(&as_computed(&batch.rewards)?)
    })?;
    let errors = value.sub(wanted.detach())?;
    let each = match variant.huber {
        false => errors.square()?,
        true => {
            let size = errors.abs()?;
            let bounded = size.clamp(None, Some(1.0))?;
            size.sub(&bounded.mul(0.5)?)?.mul(&bounded)?
        }
    };
    Ok(DqnLosses {
        loss: each.mul(&as_computed(&batch.weights)?)?.mean(())?,
        errors: errors.detach(),
        value: value.detach().mean(())?,
    })
}
