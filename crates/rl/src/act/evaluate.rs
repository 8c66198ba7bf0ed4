//! Measures how well a policy does.

use polygrad_core::{Error, Result, Rng};
use polygrad_nn::defaults;

use crate::statistics::bootstrap::{bootstrap_interval, iqm, mean, std_error};
use crate::{EpisodeStatistics, Player, Policy, StepBuffers, VectorEnv};

defaults! {
    /// Options of [`evaluate`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EvaluateConfig {
        /// The number of episodes that count. Default: 100.
        pub episodes: usize = 100,
        /// Seed of the random numbers. The episodes differ from those of a training with the same seed. Default: 0.
        pub seed: u64 = 0,
        /// Whether actions are sampled, as in training, instead of taking the likeliest. Default: false.
        pub sample: bool = false,
    }
}

/// The episodes of an [evaluation](evaluate), by environment: first all of environment 0, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The sum of rewards of each episode; with several agents, that of agent 0.
    pub returns: Vec<f64>,
    /// The number of steps of each episode.
    pub lengths: Vec<usize>,
}

/// Confidence level of the intervals of an [`Evaluation`].
const LEVEL: f64 = 0.95;

impl Evaluation {
    /// The mean return.
    pub fn mean(&self) -> f64 {
        mean(&self.returns)
    }

    /// The standard error of the mean return; NaN for a single episode.
    pub fn std_error(&self) -> f64 {
        std_error(&self.returns)
    }

    /// The interquartile mean of the returns: the mean without the best and the worst quarter.
    ///
    /// Source: Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice" (2021).
    pub fn iqm(&self) -> f64 {
        iqm(&self.returns)
    }

    /// A 95 % confidence interval of the mean return, by the percentile bootstrap; every call returns the same
    /// interval.
    pub fn mean_interval(&self) -> (f64, f64) {
        bootstrap_interval(&self.returns, mean, LEVEL)
    }

    /// The same interval for the interquartile mean.
    pub fn iqm_interval(&self) -> (f64, f64) {
        bootstrap_interval(&self.returns, iqm, LEVEL)
    }

    /// The mean length.
    pub fn mean_length(&self) -> f64 {
        self.lengths.iter().sum::<usize>() as f64 / self.lengths.len() as f64
    }
}

/// The seed of the environments in an evaluation.
pub(crate) fn evaluation_seed(seed: u64) -> u64 {
    // Bit 62 keeps the counter apart from those of episodes and of a training's iterations.
    Rng::at(seed, 1 << 62).next_u64()
}

/// Plays episodes with a policy, in environments that end them, for example by a [`TimeLimit`](crate::TimeLimit).
///
/// Every environment plays the same number of episodes, or the first ones one more, and the first episodes of each
/// count. Counting the episodes that end first would favour short ones. The same seed and number of environments give
/// the same episodes.
///
/// A policy trained on normalized observations must be given as a [`NormalizedPolicy`](crate::NormalizedPolicy).
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{ActionSpace, ActorCritic, CartPole, EvaluateConfig, PolicyConfig, Vectorized, evaluate};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device)?;
/// let mut envs = Vectorized::new(|_| CartPole::v1(), 4)?;
/// let config = EvaluateConfig { episodes: 10, ..EvaluateConfig::default() };
/// let evaluation = evaluate(&policy, &mut envs, &config)?;
/// assert_eq!(evaluation.returns.len(), 10);
/// println!("{:.1} ± {:.1}", evaluation.mean(), evaluation.std_error());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If `episodes` is 0; those of the environments and the policy.
pub fn evaluate<V: VectorEnv + ?Sized>(
    policy: &dyn Policy,
    envs: &mut V,
    config: &EvaluateConfig,
) -> Result<Evaluation> {
    if config.episodes == 0 {
        return Err(Error::invalid("0 episodes say nothing").with_hint("use at least 1"));
    }
    let (num_envs, agents, rows) = (envs.num_envs(), envs.agents(), envs.rows());
    let quota = |env: usize| config.episodes / num_envs + usize::from(env < config.episodes % num_envs);
    let seed = evaluation_seed(config.seed);
    let mut player = Player::new(policy, envs.observation_space(), envs.action_space(), rows)?;
    if config.sample {
        player = player.sampled(Rng::new(seed));
    }
    let mut buffers = StepBuffers::new(envs);
    let mut actions = vec![0.0; rows * envs.action_space().len()];
    let mut statistics = EpisodeStatistics::new(rows);
    let mut finished = Vec::new();
    let mut played: Vec<Vec<(f64, usize)>> = vec![Vec::new(); num_envs];
    envs.reset(seed, &mut buffers.observations)?;
    let mut missing = config.episodes;
    while missing > 0 {
        player.act(&buffers.observations, envs.action_masks(), &mut actions)?;
        envs.step(&actions, &mut buffers.as_mut())?;
        let (terminated, truncated) = (&buffers.terminated, &buffers.truncated);
        let ended: Vec<bool> = terminated.iter().zip(truncated).map(|(a, b)| *a || *b).collect();
        player.begin(envs.begun().unwrap_or(&ended))?;
        finished.clear();
        statistics.add(0..rows, &buffers.rewards, terminated, truncated, &mut finished)?;
        statistics.begin(envs.begun());
        for episode in finished.iter().filter(|episode| episode.row % agents == 0) {
            let env = episode.row / agents;
            if played[env].len() < quota(env) {
                played[env].push((episode.total_reward, episode.length));
                missing -= 1;
            }
        }
    }
    let (returns, lengths) = played.into_iter().flatten().unzip();
    Ok(Evaluation { returns, lengths })
}
