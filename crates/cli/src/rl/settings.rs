//! The settings that define a run in environments.

use clap::ValueEnum;
use polygrad::Device;
use polygrad::rl::gym::{self, GymConfig};
use polygrad::rl::zoo::{self, Algorithm, EnvSpec, Stepping};
use polygrad::rl::{EncoderConfig, MemoryKind, Policy, PolicyConfig, SelfPlayConfig};
use serde::{Deserialize, Serialize};

use super::taught::Taught;
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::run::config::{Base, counts};
use crate::task::RunSettings;

/// Kinds of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyKind {
    /// An MLP, or a CNN for images; no memory
    #[value(alias = "cnn")]
    Mlp,
    /// The same, followed by an LSTM
    Lstm,
    /// The same, followed by a GRU
    Gru,
    /// The same, followed by a minimal GRU
    #[value(name = "mingru")]
    MinGru,
}

impl PolicyKind {
    pub(super) fn of(policy: &PolicyConfig) -> Self {
        match policy.memory.map(|memory| memory.kind) {
            None => Self::Mlp,
            Some(MemoryKind::Lstm) => Self::Lstm,
            Some(MemoryKind::Gru) => Self::Gru,
            Some(MemoryKind::MinGru) => Self::MinGru,
        }
    }

    pub(super) fn memory(self) -> Option<MemoryKind> {
        match self {
            Self::Mlp => None,
            Self::Lstm => Some(MemoryKind::Lstm),
            Self::Gru => Some(MemoryKind::Gru),
            Self::MinGru => Some(MemoryKind::MinGru),
        }
    }

    pub(super) fn name(self) -> String {
        crate::run::config::name(self)
    }
}

/// The default number of features of a memory, if the environment's own settings have none.
pub(super) const MEMORY_SIZE: usize = 64;

/// The settings of a run, as `config.json` has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    #[serde(flatten)]
    pub(super) base: Base,
    /// The name of the environment.
    pub(super) environment: String,
    /// The Python options of the environment, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gym: Option<GymConfig>,
    /// The number of environments.
    pub(super) envs: usize,
    /// The number of threads that step them.
    pub(super) env_threads: usize,
    /// Whether they step in other threads than the one that computes.
    pub(super) asynchronous: bool,
    pub(super) policy: PolicyConfig,
    /// The opponents, in a game for two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) self_play: Option<SelfPlayConfig>,
    /// The source of demonstrations, if it learns from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taught: Option<Taught>,
    /// The algorithm, stored under its name.
    #[serde(flatten)]
    pub(super) algorithm: Algorithm,
}

impl Settings {
    /// The environment.
    ///
    /// # Errors
    /// If there is none of this name, the policy is for other observations or actions, or its Python is missing.
    pub(crate) fn spec(&self) -> Result<&'static EnvSpec> {
        let spec = open(&self.environment, self.gym.as_ref())?;
        let policy = spec.preset(None, None)?.policy;
        if self.policy.action != policy.action {
            return Err(Failure::new("its policy does not have the actions of its environment")
                .fix("take the environment as it was when it was trained, or train a new policy"));
        }
        if observation(&self.policy) != observation(&policy) {
            return Err(Failure::new("its policy does not see what its environment shows")
                .fix("take the environment as it was when it was trained, or train a new policy"));
        }
        Ok(spec)
    }

    /// Settings for an evaluation: a process that fails is not restarted, since its episodes would not count.
    pub(super) fn strictly(mut self) -> Self {
        if let Some(gym) = &mut self.gym {
            gym.max_failures = 1;
        }
        self
    }

    /// How its environments are stepped.
    pub(super) fn stepping(&self) -> Stepping {
        match (self.asynchronous, self.env_threads) {
            (true, threads) => Stepping::Asynchronous(threads),
            (false, 1) => Stepping::Serial,
            (false, threads) => Stepping::Threaded(threads),
        }
    }

    /// Fails if actions are to be sampled and the policy has no probabilities.
    ///
    /// # Errors
    /// In that case.
    pub(super) fn check_sample(&self, sample: bool) -> Result<()> {
        match self.algorithm.refuses_sampling().filter(|_| sample) {
            Some(why) => Err(
                Failure::new(format!("--sample draws actions by their probabilities, and {why}"))
                    .fix("leave --sample out: the best action is done"),
            ),
            None => Ok(()),
        }
    }

    /// A short name of the policy's network.
    pub(crate) fn network(&self) -> String {
        network(&self.policy)
    }
}

/// The environment of this name, with these Python options.
///
/// # Errors
/// If there is none.
pub(super) fn open(environment: &str, gym: Option<&GymConfig>) -> Result<&'static EnvSpec> {
    Ok(match (environment.strip_prefix(gym::PREFIX), gym) {
        (Some(name), Some(config)) => gym::find(name, config)?,
        _ => zoo::find(environment)?,
    })
}

/// The shape of an observation as a policy sees it.
pub(super) fn observation(policy: &PolicyConfig) -> Vec<usize> {
    match &policy.encoder {
        EncoderConfig::Mlp(config) => vec![config.observation_size],
        EncoderConfig::Cnn(config) => config.observation_shape.to_vec(),
    }
}

/// The number of environments, in words.
pub(super) fn environments(count: usize) -> String {
    match count {
        1 => "1 environment".to_owned(),
        count => format!("{count} environments"),
    }
}

/// A short name of a policy's network.
pub(super) fn network(policy: &PolicyConfig) -> String {
    let memory = PolicyKind::of(policy);
    let encoder = match policy.encoder {
        EncoderConfig::Mlp(_) => "mlp",
        EncoderConfig::Cnn(_) => "cnn",
    };
    match memory {
        PolicyKind::Mlp => encoder.to_owned(),
        _ => memory.name(),
    }
}

impl RunSettings for Settings {
    type Model = Box<dyn Policy>;

    const KIND: Kind = Kind::Rl;
    const MAY_CHANGE: &'static [&'static str] =
        &["ppo", "dqn", "sac", "td3", "pqn", "env_threads", "asynchronous", "gym"];

    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn check(&self) -> std::result::Result<(), String> {
        counts(&[("envs", self.envs), ("env_threads", self.env_threads)])?;
        // Starting Python takes a second, so only commands that need the environment do it.
        if !self.environment.starts_with(gym::PREFIX) {
            self.spec()
                .map_err(|failure| polygrad::Error::from(failure).message().to_owned())?;
        }
        let checked = self.algorithm.check(&self.policy, self.envs);
        let checked = checked.and_then(|()| self.self_play.as_ref().map_or(Ok(()), SelfPlayConfig::check));
        checked.map_err(|error| error.message().to_owned())
    }

    /// The policy as it is used, including the normalization of its observations.
    fn model(&self, device: &Device) -> Result<Box<dyn Policy>> {
        Ok(self.algorithm.policy(&self.policy, device)?)
    }
}
