//! Policies for reinforcement learning: from observations to the parameters of a distribution over actions, and a value.

mod actor_critic;
mod config;
mod state;
mod trunk;

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::{Module, watch};

pub use actor_critic::{ActorCritic, CnnPolicy, LstmPolicy, MlpPolicy};
pub use config::{
    CnnEncoderConfig, CnnPolicyConfig, ConvLayer, EncoderConfig, LstmPolicyConfig, MlpEncoderConfig, MlpPolicyConfig,
    PolicyConfig,
};
pub use state::PolicyState;

/// What actions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionSpace {
    /// One of so many.
    Discrete(usize),
    /// A vector of so many numbers.
    Continuous(usize),
}

impl ActionSpace {
    /// Outputs of an actor for it.
    pub const fn size(self) -> usize {
        match self {
            Self::Discrete(size) | Self::Continuous(size) => size,
        }
    }
}

/// The parameters of a distribution over actions, for each observation of a batch.
pub enum ActionParams<B: Backend = AnyBackend> {
    /// Of a categorical distribution: unnormalized logarithms of probabilities, `[N, actions]`.
    Logits(Tensor<B>),
    /// Of independent normal distributions.
    Gaussian {
        /// `[N, size]`.
        mean: Tensor<B>,
        /// The logarithm of the standard deviation, which does not depend on the observation: `[size]`.
        log_std: Tensor<B>,
    },
}

impl<B: Backend> ActionParams<B> {
    /// The actor's own output: logits or means.
    pub fn output(&self) -> &Tensor<B> {
        match self {
            Self::Logits(logits) => logits,
            Self::Gaussian { mean, .. } => mean,
        }
    }
}

impl<B: Backend> Clone for ActionParams<B> {
    fn clone(&self) -> Self {
        match self {
            Self::Logits(logits) => Self::Logits(logits.clone()),
            Self::Gaussian { mean, log_std } => Self::Gaussian {
                mean: mean.clone(),
                log_std: log_std.clone(),
            },
        }
    }
}

/// What a policy answers: the parameters of its distribution, the value `[N]` of each observation, and its next state.
pub type PolicyOutput<B = AnyBackend> = (ActionParams<B>, Tensor<B>, PolicyState<B>);

impl<B: Backend> watch::Output<B> for PolicyOutput<B> {
    fn activation(&self) -> &Tensor<B> {
        self.0.output()
    }
}

/// A policy with a value function. Its state is carried from step to step by the caller, so that one policy can act in many places at once.
///
/// ```
/// use polygrad_nn::models::{ActionParams, ActionSpace, MlpPolicy, MlpPolicyConfig, Policy};
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let policy = MlpPolicy::new(&MlpPolicyConfig::new(4, ActionSpace::Discrete(2)), &device)?;
/// let mut state = policy.initial_state(8)?;
/// let (action, value, next) = policy.forward(&Tensor::ones([8, 4], &device)?, &state)?;
/// let ActionParams::Logits(logits) = action else { unreachable!("discrete actions have logits") };
/// assert_eq!((logits.dims(), value.dims()), (vec![8, 2], vec![8]));
/// // Where an episode ended, the next one begins with a fresh state.
/// state = next.reset(&Tensor::zeros([8], &device)?)?;
/// # Ok(())
/// # }
/// ```
pub trait Policy<B: Backend = AnyBackend>: Module<B> + Send + Sync {
    /// The state before the first observation of `batch` episodes. Policies without memory have an empty one.
    ///
    /// # Errors
    /// When memory runs out.
    fn initial_state(&self, batch: usize) -> Result<PolicyState<B>>;

    /// One step: from observations `[N, …]`, of any dtype, and the state before them.
    ///
    /// # Errors
    /// When the observations' shape or device do not fit, or the state is another policy's or of another batch.
    fn forward(&self, observations: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>>;

    /// Several steps: from observations `[T, N, …]` and the state before the first. `starts [T, N]` is not 0 (or is true) where an observation
    /// is the first of its episode; the state is fresh there. The answer has logits or means `[T, N, …]`, values `[T, N]`, and the state after
    /// the last step.
    ///
    /// # Errors
    /// As [`Policy::forward`]; and when there is no step, or `starts` has another shape.
    fn unroll(&self, observations: &Tensor<B>, starts: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        let (dims, steps) = (observations.dims(), observations.dims().first().copied().unwrap_or(0));
        if steps == 0 || dims.len() < 2 || starts.dims() != dims[..2] {
            return Err(Error::shape(format!(
                "observations must be [T, N, …] with T ≥ 1, and starts [T, N]; they are {} and {}",
                observations.shape(),
                starts.shape()
            ))
            .with_op("unroll"));
        }
        let (mut outputs, mut values) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
        let mut state = state.clone();
        let mut gaussian = None;
        for step in 0..steps {
            let at = |x: &Tensor<B>| x.narrow(0, step, 1)?.squeeze(0);
            let (action, value, next) = self.forward(&at(observations)?, &state.reset(&at(starts)?)?)?;
            match action {
                ActionParams::Logits(logits) => outputs.push(logits),
                ActionParams::Gaussian { mean, log_std } => {
                    outputs.push(mean);
                    gaussian = Some(log_std);
                }
            }
            values.push(value);
            state = next;
        }
        let stack = |all: &[Tensor<B>]| Tensor::stack(&all.iter().collect::<Vec<_>>(), 0);
        let output = stack(&outputs)?;
        let action = match gaussian {
            None => ActionParams::Logits(output),
            Some(log_std) => ActionParams::Gaussian { mean: output, log_std },
        };
        Ok((action, stack(&values)?, state))
    }
}
