//! The body that all policies have.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::config::{CnnPolicyConfig, LstmPolicyConfig, MlpPolicyConfig, PolicyConfig};
use super::trunk::Trunk;
use super::{ActionParams, ActionSpace, Policy, PolicyOutput, PolicyState};
use crate::{Init, Linear, LinearConfig, Module, Param, watch};

/// An actor and a critic, which share a trunk or have one each: [`MlpPolicy`], [`CnnPolicy`] or [`LstmPolicy`].
///
/// Parameters are `trunk.network.0.weight`, …, `trunk.lstm.weight_ih_l0`, …, `critic_trunk.…` if it is not shared, `actor.weight`,
/// `critic.weight`, and for continuous actions `log_std`. They begin as CleanRL's: weights orthogonal with a gain of √2 in hidden layers, 1 in
/// LSTMs, 0.01 in the actor's last layer and 1 in the critic's; biases and `log_std` are 0.
///
/// Source: Huang et al., "The 37 implementation details of proximal policy optimization" (2022).
#[derive(Module)]
pub struct ActorCritic<C: PolicyConfig, B: Backend = AnyBackend> {
    /// Of both, or the actor's.
    trunk: Trunk<B>,
    critic_trunk: Option<Trunk<B>>,
    /// From features to logits or means.
    pub actor: Linear<B>,
    /// The logarithm of the standard deviation of continuous actions: `[size]`.
    pub log_std: Option<Param<B>>,
    /// From features to the value.
    pub critic: Linear<B>,
    #[module(skip)]
    config: C,
}

/// A policy over observations that are vectors, `[N, observation_size]`.
pub type MlpPolicy<B = AnyBackend> = ActorCritic<MlpPolicyConfig, B>;

/// A policy over observations that are images, `[N, channels, height, width]`, of bytes or of floats.
pub type CnnPolicy<B = AnyBackend> = ActorCritic<CnnPolicyConfig, B>;

/// A policy with memory: an LSTM between encoder and heads. Its state is `h` and `c`, `[num_layers, N, hidden_size]` each; where actor and
/// critic share nothing, the actor's before the critic's.
///
/// ```
/// use polygrad_nn::models::{ActionSpace, EncoderConfig, LstmPolicy, LstmPolicyConfig, MlpEncoderConfig, Policy};
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let encoder = EncoderConfig::Mlp(MlpEncoderConfig::new(3));
/// let policy = LstmPolicy::new(&LstmPolicyConfig::new(encoder, ActionSpace::Continuous(2)), &device)?;
/// let mut state = policy.initial_state(4)?;
/// for _ in 0..10 {
///     let (action, value, next) = policy.forward(&Tensor::ones([4, 3], &device)?, &state)?;
///     // … act, and see which of the four episodes have ended.
///     let done = Tensor::new([0.0f32, 1.0, 0.0, 0.0], &device)?;
///     state = next.reset(&done)?;
/// }
/// # Ok(())
/// # }
/// ```
pub type LstmPolicy<B = AnyBackend> = ActorCritic<LstmPolicyConfig, B>;

impl<C: PolicyConfig, B: Backend> ActorCritic<C, B> {
    /// A policy with fresh parameters.
    ///
    /// # Errors
    /// When there are no actions, a size is 0, convolutions do not fit the images, or memory runs out.
    pub fn new(config: &C, device: &Device<B>) -> Result<Self> {
        let action = config.action();
        if action.size() == 0 {
            return Err(Error::invalid("there are no actions").with_op("policy"));
        }
        let (encoder, lstm) = (config.encoder(), config.lstm());
        let (trunk, features) = Trunk::new(&encoder, lstm, device)?;
        let critic_trunk = match config.shared() {
            true => None,
            false => Some(Trunk::new(&encoder, lstm, device)?.0),
        };
        let head = |outputs: usize, gain: f64| {
            let config = LinearConfig::new(features, outputs);
            config.init(Init::orthogonal(gain)).bias_init(Init::ZEROS).build(device)
        };
        let log_std = match action {
            ActionSpace::Discrete(_) => None,
            ActionSpace::Continuous(size) => Some(Init::ZEROS.param([size], device)?),
        };
        Ok(Self {
            trunk,
            critic_trunk,
            actor: head(action.size(), 0.01)?,
            log_std,
            critic: head(1, 1.0)?,
            config: config.clone(),
        })
    }

    /// How it was made.
    pub fn config(&self) -> &C {
        &self.config
    }

    fn compute(&self, observations: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        let len = self.trunk.state_len();
        let expected = len * (1 + usize::from(self.critic_trunk.is_some()));
        if state.parts().len() != expected {
            return Err(Error::invalid(format!(
                "the state has {} tensors, this policy's have {expected}",
                state.parts().len()
            ))
            .with_op("policy")
            .with_hint("begin with initial_state(batch)"));
        }
        let dtype = self.actor.weight.dtype();
        let (actor_state, critic_state) = state.parts().split_at(len);
        let (features, mut next) = self.trunk.forward(observations, actor_state, dtype)?;
        let output = self.actor.forward(&features)?;
        let critic_features = match &self.critic_trunk {
            None => features,
            Some(trunk) => {
                let (features, critic_next) = trunk.forward(observations, critic_state, dtype)?;
                next.extend(critic_next);
                features
            }
        };
        let value = self.critic.forward(&critic_features)?.squeeze(1)?;
        let action = match &self.log_std {
            None => ActionParams::Logits(output),
            Some(log_std) => ActionParams::Gaussian {
                mean: output,
                log_std: log_std.tensor(),
            },
        };
        Ok((action, value, PolicyState::new(next)))
    }
}

impl<C: PolicyConfig, B: Backend> Policy<B> for ActorCritic<C, B> {
    fn initial_state(&self, batch: usize) -> Result<PolicyState<B>> {
        let mut parts = self.trunk.initial_state(batch)?;
        if let Some(trunk) = &self.critic_trunk {
            parts.extend(trunk.initial_state(batch)?);
        }
        Ok(PolicyState::new(parts))
    }

    fn forward(&self, observations: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        watch::layer(self, observations, || self.compute(observations, state))
    }
}
