//! Options of DQN.

use polygrad_tensor::Result;
use serde::{Deserialize, Serialize};

use crate::off_policy::{Pace, in_range, is_rate, is_share, pace};
use crate::{Annealed, PriorityConfig};

/// Options of [`Dqn`](super::Dqn). The defaults are those of CleanRL's `dqn.py`.
///
/// ```
/// use polygrad_rl::{DqnConfig, PriorityConfig};
///
/// let config = DqnConfig {
///     double: true,
///     n_step: 3,
///     prioritized: Some(PriorityConfig::default()),
///     ..DqnConfig::default()
/// };
/// # assert_eq!(config.buffer_size, 10_000);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DqnConfig {
    /// Seed of the random numbers; the same seed gives the same training. Default: 0.
    pub seed: u64,
    /// Steps of all environments together in the whole training, over which values are annealed. Default: 500,000.
    pub total_steps: u64,
    /// The learning rate. Default: 2.5e-4.
    pub learning_rate: Annealed,
    /// The most transitions that are kept. Default: 10,000.
    pub buffer_size: usize,
    /// Transitions per step of the optimizer. Default: 128.
    pub batch_size: usize,
    /// Steps of all environments together before the first step of the optimizer. Default: 10,000.
    pub learning_starts: u64,
    /// Steps of each environment between two trainings. Default: 10.
    pub train_frequency: usize,
    /// Steps of the optimizer per training. Default: 1.
    pub gradient_steps: usize,
    /// Steps of all environments together between two copies of the network to its target. Default: 500.
    pub target_frequency: u64,
    /// The discount of a reward one step later. Default: 0.99.
    pub gamma: f64,
    /// The probability of a random action. Default: from 1 to 0.05.
    pub epsilon: Annealed,
    /// The share of the training after which `epsilon` no longer changes. Default: 0.5.
    pub exploration_fraction: f64,
    /// The greatest norm of all gradients together; `None` does not clip. Default: `None`.
    pub max_grad_norm: Option<f64>,
    /// Whether to use the Huber loss (half the squared error below 1, the absolute error less ½ above) instead of the
    /// squared error. Default: false.
    pub huber: bool,
    /// Whether the network, not its target, chooses the action whose value the target estimates for the next
    /// observation. Default: false.
    ///
    /// Source: van Hasselt et al., "Deep reinforcement learning with double Q-learning" (2016).
    pub double: bool,
    /// Whether the network computes the value of a state and the advantages of actions separately. Default: false.
    ///
    /// Source: Wang et al., "Dueling network architectures for deep reinforcement learning" (2016).
    pub dueling: bool,
    /// Steps of a transition. Default: 1.
    pub n_step: usize,
    /// How transitions are prioritized by their errors. Default: `None`, sampled uniformly.
    pub prioritized: Option<PriorityConfig>,
}

impl Default for DqnConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            total_steps: 500_000,
            learning_rate: 2.5e-4.into(),
            buffer_size: 10_000,
            batch_size: 128,
            learning_starts: 10_000,
            train_frequency: 10,
            gradient_steps: 1,
            target_frequency: 500,
            gamma: 0.99,
            epsilon: Annealed::Linear(1.0, 0.05),
            exploration_fraction: 0.5,
            max_grad_norm: None,
            huber: false,
            double: false,
            dueling: false,
            n_step: 1,
            prioritized: None,
        }
    }
}

impl DqnConfig {
    /// Fails if an option is out of range for `rows`, the number of environments.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self, rows: usize) -> Result<()> {
        let checked = self.pace().check(rows).and_then(|()| {
            in_range(&[
                ("epsilon", self.epsilon.all(is_share), "from 0 to 1"),
                (
                    "exploration_fraction",
                    is_share(self.exploration_fraction),
                    "from 0 to 1",
                ),
                ("learning_rate", self.learning_rate.all(is_rate), "at least 0"),
                ("target_frequency", self.target_frequency > 0, "at least 1"),
                (
                    "max_grad_norm",
                    self.max_grad_norm.is_none_or(|x| x.is_finite() && x > 0.0),
                    "above 0",
                ),
            ])?;
            self.prioritized.as_ref().map_or(Ok(()), PriorityConfig::check)
        });
        checked.map_err(|error| error.with_op("DQN"))
    }

    pub(super) fn pace(&self) -> Pace {
        pace!(self, n_step: self.n_step)
    }
}
