//! What defines a run in environments.

use clap::ValueEnum;
use polygrad::Device;
use polygrad::rl::zoo::{self, EnvSpec, Stepping};
use polygrad::rl::{
    ActorCritic, Annealed, EncoderConfig, MemoryConfig, MemoryKind, NormalizedPolicy, Normalizer, Policy, PolicyConfig,
    PpoConfig,
};
use serde::{Deserialize, Serialize};

use crate::args::Train;
use crate::failure::Result;
use crate::kind::Kind;
use crate::run::config::{Base, counts};
use crate::task::RunSettings;
use crate::train::resumed::{Change, Fixed};

/// Kinds of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyKind {
    /// A perceptron, or convolutions for images: without memory
    #[value(alias = "cnn")]
    Mlp,
    /// The same with an LSTM behind it
    Lstm,
    /// The same with a GRU
    Gru,
    /// The same with a minimal GRU
    #[value(name = "mingru")]
    MinGru,
}

impl PolicyKind {
    fn of(policy: &PolicyConfig) -> Self {
        match policy.memory.map(|memory| memory.kind) {
            None => Self::Mlp,
            Some(MemoryKind::Lstm) => Self::Lstm,
            Some(MemoryKind::Gru) => Self::Gru,
            Some(MemoryKind::MinGru) => Self::MinGru,
        }
    }

    fn memory(self) -> Option<MemoryKind> {
        match self {
            Self::Mlp => None,
            Self::Lstm => Some(MemoryKind::Lstm),
            Self::Gru => Some(MemoryKind::Gru),
            Self::MinGru => Some(MemoryKind::MinGru),
        }
    }

    fn name(self) -> String {
        crate::run::config::name(self)
    }
}

/// Features of a memory, where the environment's own settings have none.
const MEMORY_SIZE: usize = 64;

/// The settings of a run, as `config.json` has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    #[serde(flatten)]
    pub(super) base: Base,
    /// Its name.
    pub(super) environment: String,
    /// How many there are.
    pub(super) envs: usize,
    /// In how many threads they step.
    pub(super) env_threads: usize,
    /// Whether these are others than the one that computes.
    pub(super) asynchronous: bool,
    pub(super) policy: PolicyConfig,
    pub(super) ppo: PpoConfig,
}

impl Settings {
    /// Those of a new run.
    ///
    /// # Errors
    /// An environment that there is not.
    pub(super) fn of_options(args: &Train) -> Result<Self> {
        let spec = zoo::find(args.dataset.as_deref().unwrap_or_default())?;
        let known = spec.hyperparameters();
        let (mut policy, mut ppo) = (known.policy, known.ppo);
        if let Some(kind) = args.rl.policy {
            let size = policy.memory.map_or(MEMORY_SIZE, |memory| memory.hidden_size);
            policy.memory = kind.memory().map(|kind| MemoryConfig::new(kind, size));
        }
        ppo.seed = args.seed.unwrap_or(0);
        ppo.total_steps = args.rl.total_steps.unwrap_or(ppo.total_steps);
        if let Some(rate) = args.lr {
            ppo.learning_rate = match ppo.learning_rate {
                Annealed::Constant(_) => Annealed::Constant(rate),
                Annealed::Linear(..) => Annealed::Linear(rate, 0.0),
            };
        }
        Ok(Self {
            base: Base::new(Kind::Rl, args),
            environment: spec.name.to_owned(),
            envs: args.rl.envs.unwrap_or(known.num_envs),
            env_threads: args.rl.env_threads.unwrap_or(1),
            asynchronous: args.rl.asynchronous,
            policy,
            ppo,
        })
    }

    /// Those with which a run goes on.
    ///
    /// # Errors
    /// Options that ask for something else than the run has.
    pub(super) fn resumed(&self, args: &Train, run: &std::path::Path) -> Result<Self> {
        let (mut settings, mut fixed) = (self.clone(), Fixed::default());
        fixed.option("the environment", args.dataset.clone(), self.environment.clone());
        fixed.option("--envs", args.rl.envs, self.envs);
        let policy = PolicyKind::of(&self.policy).name();
        fixed.option("--policy", args.rl.policy.map(PolicyKind::name), policy);
        fixed.option("--seed", args.seed, self.ppo.seed);
        let rate = self.ppo.learning_rate.at(0.0);
        fixed.option("--lr", args.lr, rate);
        let fewer = args.rl.total_steps.filter(|&steps| steps < self.ppo.total_steps);
        fixed.option("--total-steps", fewer, self.ppo.total_steps);
        fixed.check(run)?;
        settings.base.resume(args);
        settings.ppo.total_steps = args.rl.total_steps.unwrap_or(self.ppo.total_steps);
        settings.env_threads = args.rl.env_threads.unwrap_or(self.env_threads);
        settings.asynchronous |= args.rl.asynchronous;
        Ok(settings)
    }

    /// What has changed since the run began.
    pub(super) fn changes(&self, before: &Self) -> impl Iterator<Item = Change> {
        let steps = [before, self].map(|settings| settings.ppo.total_steps.to_string());
        let note = "; what is annealed goes on as if that had been so from the start";
        std::iter::once(("total steps", steps, note)).chain(crate::train::resumed::of_base(&before.base, &self.base))
    }

    /// The environment.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(crate) fn spec(&self) -> Result<&'static EnvSpec> {
        Ok(zoo::find(&self.environment)?)
    }

    /// Where its environments step.
    pub(super) fn stepping(&self) -> Stepping {
        match (self.asynchronous, self.env_threads) {
            (true, threads) => Stepping::Asynchronous(threads),
            (false, 1) => Stepping::Serial,
            (false, threads) => Stepping::Threaded(threads),
        }
    }

    /// A new policy, without what normalizes its observations.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn actor_critic(&self, device: &Device) -> Result<ActorCritic> {
        Ok(ActorCritic::new(&self.policy, device)?)
    }

    /// What the policy is, in a word or two.
    pub(crate) fn network(&self) -> String {
        network(&self.policy)
    }
}

/// What a policy is, in a word or two.
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
    const MAY_CHANGE: &'static [&'static str] = &["ppo", "env_threads", "asynchronous"];

    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn check(&self) -> std::result::Result<(), String> {
        counts(&[("envs", self.envs), ("env_threads", self.env_threads)])?;
        let text = |error: polygrad::Error| error.message().to_owned();
        let spec = zoo::find(&self.environment).map_err(text)?;
        if self.policy.action != spec.hyperparameters().policy.action {
            return Err("its policy does not have the actions of its environment".to_owned());
        }
        self.ppo.check(self.envs).map_err(text)
    }

    /// As it is used: with what normalizes its observations.
    fn model(&self, device: &Device) -> Result<Box<dyn Policy>> {
        let policy = self.actor_critic(device)?;
        let Some(clip) = self.ppo.normalize_observations else {
            return Ok(Box::new(policy));
        };
        let size = match &self.policy.encoder {
            EncoderConfig::Mlp(config) => config.observation_size,
            EncoderConfig::Cnn(config) => config.observation_shape.iter().product(),
        };
        let normalizer = Normalizer::new(size, Some(clip), device)?;
        Ok(Box::new(NormalizedPolicy { normalizer, policy }))
    }
}
