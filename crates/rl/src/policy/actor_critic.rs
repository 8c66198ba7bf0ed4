//! The policy that configs describe.

use polygrad_nn::{Init, Linear, LinearConfig, Module, Param, watch};
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::config::PolicyConfig;
use super::sde::{StateDependentNoise, log_std_param};
use super::trunk::{Start, Trunk};
use super::{ActionParams, ActionSpace, Policy, PolicyOutput, PolicyState, check_unroll};

/// An actor and a critic, which share a trunk or have separate ones.
///
/// Parameters are `trunk.network.0.weight`, …, `trunk.memory.weight_ih_l0`, …, `critic_trunk.…` if it is not shared,
/// `actor.weight`, `critic.weight`, and for continuous actions `log_std`. Their initial values are CleanRL's:
/// orthogonal weights with a gain of √2 in hidden layers, 1 in recurrent ones, 0.01 in the actor's last layer and 1 in
/// the critic's; biases and `log_std` are 0.
///
/// The state of a policy with memory is `h` and for an LSTM `c`, `[num_layers, N, hidden_size]` each. If actor and
/// critic share nothing, the actor's state comes before the critic's.
///
/// Source: Huang et al., "The 37 implementation details of proximal policy optimization" (2022).
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{ActionSpace, ActorCritic, MemoryConfig, MemoryKind, Policy, PolicyConfig};
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let config = PolicyConfig {
///     memory: Some(MemoryConfig::new(MemoryKind::Lstm, 16)),
///     shared: true,
///     ..PolicyConfig::mlp(3, ActionSpace::Continuous(2))
/// };
/// let policy = ActorCritic::new(&config, &device)?;
/// let mut state = policy.initial_state(4)?;
/// for _ in 0..10 {
///     let output = policy.forward(&Tensor::ones([4, 3], &device)?, &state)?;
///     // … act, and see which of the four episodes have ended.
///     let done = Tensor::new([0.0f32, 1.0, 0.0, 0.0], &device)?;
///     state = output.state.reset(&done)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
pub struct ActorCritic<B: Backend = AnyBackend> {
    /// The shared trunk, or the actor's.
    trunk: Trunk<B>,
    critic_trunk: Option<Trunk<B>>,
    /// From features to logits, or to means, followed by the logarithms of standard deviations if these depend on the
    /// observation.
    pub actor: Linear<B>,
    /// The logarithm of the standard deviation of continuous actions where it does not depend on the observation,
    /// `[size]`; with [`use_sde`](Self::use_sde) that of the noise's matrix, `[features, size]`.
    pub log_std: Option<Param<B>>,
    /// From features to the value, if there is a critic.
    pub critic: Option<Linear<B>>,
    #[module(skip)]
    config: PolicyConfig,
}

impl<B: Backend> ActorCritic<B> {
    /// A policy with fresh parameters.
    ///
    /// # Errors
    /// If there are no actions, a size is 0, convolutions do not fit the images, or memory runs out.
    pub fn new(config: &PolicyConfig, device: &Device<B>) -> Result<Self> {
        Self::made(config, true, device)
    }

    /// An actor without a critic, which estimates no values.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn actor(config: &PolicyConfig, device: &Device<B>) -> Result<Self> {
        Self::made(config, false, device)
    }

    fn made(config: &PolicyConfig, has_critic: bool, device: &Device<B>) -> Result<Self> {
        let action = &config.action;
        action.check()?;
        let is_continuous = matches!(action, ActionSpace::Continuous(_));
        if config.state_dependent_std && !is_continuous {
            return Err(Error::invalid("only continuous actions have a standard deviation").with_op("policy"));
        }
        let start = match config.ortho_init {
            true => Start::Orthogonal,
            false => Start::Default,
        };
        let (trunk, features) = Trunk::new(&config.encoder, config.memory, start, device)?;
        let critic_trunk = match config.shared || !has_critic {
            true => None,
            false => Some(Trunk::new(&config.encoder, config.memory, start, device)?.0),
        };
        let head = |outputs: usize, gain: f64| {
            let layer = LinearConfig::new(features, outputs);
            match start {
                Start::Orthogonal => layer.init(Init::orthogonal(gain)).bias_init(Init::ZEROS).build(device),
                Start::Default => layer.build(device),
            }
        };
        let outputs = action
            .outputs()
            .saturating_mul(1 + usize::from(config.state_dependent_std));
        let log_std = match is_continuous && !config.state_dependent_std {
            true => Some(Init::ZEROS.param([action.outputs()], device)?),
            false => None,
        };
        Ok(Self {
            trunk,
            critic_trunk,
            actor: head(outputs, 0.01)?,
            log_std,
            critic: has_critic.then(|| head(1, 1.0)).transpose()?,
            config: config.clone(),
        })
    }

    /// The same with state-dependent exploration in training; `log_std_init` is the logarithm of the standard
    /// deviations of the [noise](StateDependentNoise)'s matrix at the beginning. The noise has no gradient for the
    /// features.
    ///
    /// # Errors
    /// When actions are not continuous, their standard deviation is an output of the actor, or the number is none.
    pub fn use_sde(mut self, log_std_init: f64) -> Result<Self> {
        self.config.check_sde()?;
        let weight = &self.actor.weight;
        let size = [weight.shape()[1], weight.shape()[0]];
        self.log_std = Some(log_std_param(size, log_std_init, &weight.device())?);
        Ok(self)
    }

    /// How it was made, but for [`use_sde`](Self::use_sde).
    pub fn config(&self) -> &PolicyConfig {
        &self.config
    }

    /// The outputs of the heads for features `[N, …]`. `run` computes the features with one trunk and its part of the
    /// state.
    fn answer(
        &self,
        state: &PolicyState<B>,
        run: impl Fn(&Trunk<B>, &[Tensor<B>]) -> Result<(Tensor<B>, Vec<Tensor<B>>)>,
    ) -> Result<PolicyOutput<B>> {
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
        let (actor_state, critic_state) = state.parts().split_at(len);
        let (features, mut next) = run(&self.trunk, actor_state)?;
        let output = self.actor.forward(&features)?;
        let noise = self.noise(&features);
        let critic_features = match &self.critic_trunk {
            None => features,
            Some(trunk) => {
                let (features, critic_next) = run(trunk, critic_state)?;
                next.extend(critic_next);
                features
            }
        };
        let value = self.critic.as_ref();
        let value = value.map(|critic| critic.forward(&critic_features)?.squeeze(1));
        Ok(PolicyOutput {
            action: self.params(output, noise.as_ref())?,
            value: value.transpose()?,
            noise,
            state: PolicyState::new(next),
        })
    }

    /// What actions are explored by, if that depends on the state.
    fn noise(&self, features: &Tensor<B>) -> Option<StateDependentNoise<B>> {
        let log_std = self.log_std.as_ref()?.tensor();
        (log_std.rank() == 2).then(|| StateDependentNoise {
            features: features.detach(),
            log_std,
        })
    }

    fn params(&self, output: Tensor<B>, noise: Option<&StateDependentNoise<B>>) -> Result<ActionParams<B>> {
        if let Some(noise) = noise {
            return Ok(ActionParams::Normal {
                mean: output,
                log_std: noise.action_log_std()?,
            });
        }
        Ok(match (&self.config.action, &self.log_std) {
            (ActionSpace::Discrete(_), _) => ActionParams::Categorical(output),
            (ActionSpace::MultiDiscrete(nvec), _) => ActionParams::MultiDiscrete(output, nvec.as_slice().into()),
            (ActionSpace::MultiBinary(_), _) => ActionParams::Bernoulli(output),
            (ActionSpace::Continuous(_), Some(log_std)) => ActionParams::Normal {
                mean: output,
                log_std: log_std.tensor(),
            },
            (ActionSpace::Continuous(size), None) => ActionParams::Normal {
                mean: output.narrow(1, 0, *size)?,
                log_std: output.narrow(1, *size, *size)?,
            },
        })
    }
}

impl<B: Backend> Policy<B> for ActorCritic<B> {
    fn initial_state(&self, batch: usize) -> Result<PolicyState<B>> {
        let mut parts = self.trunk.initial_state(batch)?;
        if let Some(trunk) = &self.critic_trunk {
            parts.extend(trunk.initial_state(batch)?);
        }
        Ok(PolicyState::new(parts))
    }

    fn forward(&self, observations: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        let dtype = self.actor.weight.dtype();
        watch::layer(self, observations, || {
            self.answer(state, |trunk, state| trunk.forward(observations, state, dtype))
        })
    }

    fn unroll(&self, observations: &Tensor<B>, starts: &Tensor<B>, state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        check_unroll(observations, starts)?;
        let dtype = self.actor.weight.dtype();
        watch::layer(self, observations, || {
            let output = self.answer(state, |trunk, state| trunk.unroll(observations, starts, state, dtype))?;
            let [steps, rows] = [starts.shape()[0], starts.shape()[1]];
            Ok(PolicyOutput {
                action: output.action.map(|x| x.reshape([steps, rows, x.shape()[1]]))?,
                value: output.value.map(|value| value.reshape([steps, rows])).transpose()?,
                noise: None,
                state: output.state,
            })
        })
    }
}
