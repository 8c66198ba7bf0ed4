//! Policies: from observations to the parameters of a distribution over actions, and a value.

mod action;
mod actor_critic;
mod bounded;
mod config;
mod memory;
mod normalized;
mod q_network;
mod sde;
mod state;
mod trunk;

use polygrad_nn::{Module, watch};
use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

pub use action::{ActionDistribution, ActionParams, ActionSpace};
pub use actor_critic::ActorCritic;
pub use bounded::{ActionValue, BoundedPolicy};
pub use config::{
    CnnEncoderConfig, ConvLayer, EncoderConfig, MemoryConfig, MemoryKind, MlpEncoderConfig, PolicyConfig,
};
pub use normalized::{NormalizedPolicy, Normalizer};
pub use q_network::QNetwork;
pub(crate) use sde::StateDependent;
pub use sde::StateDependentNoise;
pub use state::PolicyState;

/// The output of a policy.
pub struct PolicyOutput<B: Backend = AnyBackend> {
    /// The parameters of the distribution over actions.
    pub action: ActionParams<B>,
    /// The value of each observation, `[N]`; `None` if the policy does not estimate it.
    pub value: Option<Tensor<B>>,
    /// By what actions are explored in training, of a policy with state-dependent exploration; none behind several
    /// steps.
    pub noise: Option<StateDependentNoise<B>>,
    /// What the policy remembers next.
    pub state: PolicyState<B>,
}

impl<B: Backend> PolicyOutput<B> {
    /// The value of each observation.
    ///
    /// # Errors
    /// If the policy does not estimate it.
    pub fn value(&self) -> Result<&Tensor<B>> {
        self.value.as_ref().ok_or_else(|| {
            Error::invalid("the policy estimates no values")
                .with_op("policy")
                .with_hint("take an algorithm that needs none, or a policy that does, such as ActorCritic")
        })
    }
}

impl<B: Backend> watch::Output<B> for PolicyOutput<B> {
    fn activation(&self) -> &Tensor<B> {
        self.action.output()
    }
}

/// A policy, usually with a value function. The caller keeps its state from step to step, so that one policy can act in
/// many places at once.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{ActionSpace, ActorCritic, Policy, PolicyConfig};
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device)?;
/// let mut state = policy.initial_state(8)?;
/// let output = policy.forward(&Tensor::ones([8, 4], &device)?, &state)?;
/// assert_eq!((output.action.output().dims(), output.value()?.dims()), (vec![8, 2], vec![8]));
/// // Where an episode ended, the next one begins with a fresh state.
/// state = output.state.reset(&Tensor::zeros([8], &device)?)?;
/// # Ok(())
/// # }
/// ```
pub trait Policy<B: Backend = AnyBackend>: Module<B> + Send + Sync {
    /// The state before the first observation of `batch` episodes. Policies without memory have an empty one.
    ///
    /// # Errors
    /// If memory runs out.
    fn initial_state(&self, batch: usize) -> Result<PolicyState<B>>;

    /// One step: takes observations `[N, …]`, of any dtype, and the state before them.
    ///
    /// # Errors
    /// If the observations' shape or device do not fit, or the state belongs to another policy or another batch.
    fn forward(&self, observations: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>>;

    /// Several steps: takes observations `[T, N, …]` and the state before the first. `starts [T, N]` is nonzero (or
    /// true) for an observation that is the first of its episode, before which the state is reset. The output has
    /// logits or means `[T, N, …]`, values `[T, N]`, and the state after the last step.
    ///
    /// # Errors
    /// Those of [`Policy::forward`]; and if there is no step, or `starts` has another shape.
    fn unroll(&self, observations: &Tensor<B>, starts: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        check_unroll(observations, starts)?;
        let (mut actions, mut values) = (Vec::new(), Vec::new());
        let mut state = state.clone();
        for (observation, starts) in observations.unbind(0)?.iter().zip(&starts.unbind(0)?) {
            let output = self.forward(observation, &state.reset(starts)?)?;
            actions.push(output.action);
            values.extend(output.value);
            state = output.state;
        }
        Ok(PolicyOutput {
            action: ActionParams::stack(&actions)?,
            value: match values.is_empty() {
                true => None,
                false => Some(Tensor::stack(&values.iter().collect::<Vec<_>>(), 0)?),
            },
            noise: None,
            state,
        })
    }
}

/// A pointer to a policy is a policy.
macro_rules! behind {
    ($($type:ty)*) => {$(
        impl<B: Backend, P: Policy<B> + ?Sized> Policy<B> for $type {
            fn initial_state(&self, batch: usize) -> Result<PolicyState<B>> {
                (**self).initial_state(batch)
            }

            fn forward(&self, observations: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
                (**self).forward(observations, state)
            }

            fn unroll(
                &self,
                observations: &Tensor<B>,
                starts: &Tensor<B>,
                state: &PolicyState<B>,
            ) -> Result<PolicyOutput<B>> {
                (**self).unroll(observations, starts, state)
            }
        }
    )*};
}

behind!(Box<P> &P);

fn check_unroll<B: Backend>(observations: &Tensor<B>, starts: &Tensor<B>) -> Result<()> {
    let dims = observations.dims();
    if dims.len() >= 2 && dims[0] > 0 && starts.dims() == dims[..2] {
        return Ok(());
    }
    Err(Error::shape(format!(
        "observations must be [T, N, …] with T ≥ 1, and starts [T, N]; they are {} and {}",
        observations.shape(),
        starts.shape()
    ))
    .with_op("unroll"))
}
