//! Options of DQN.

use polygrad_nn::defaults;
use polygrad_tensor::Result;
use serde::{Deserialize, Serialize};

use crate::off_policy::{Pace, pace};
use crate::ranges::{in_range, is_bound, is_rate, is_share};
use crate::{Annealed, PriorityConfig};

defaults! {
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
        pub seed: u64 = 0,
        /// Steps of all environments together in the whole training, over which values are annealed. Default: 500,000.
        pub total_steps: u64 = 500_000,
        /// The learning rate. Default: 2.5e-4.
        pub learning_rate: Annealed = 2.5e-4.into(),
        /// The most transitions that are kept. Default: 10,000.
        pub buffer_size: usize = 10_000,
        /// Transitions per step of the optimizer. Default: 128.
        pub batch_size: usize = 128,
        /// Steps of all environments together before the first step of the optimizer. Default: 10,000.
        pub learning_starts: u64 = 10_000,
        /// Steps of each environment between two trainings. Default: 10.
        pub train_frequency: usize = 10,
        /// Steps of the optimizer per training. Default: 1.
        pub gradient_steps: usize = 1,
        /// Steps of all environments together between two copies of the network to its target. Default: 500.
        pub target_frequency: u64 = 500,
        /// The discount of a reward one step later. Default: 0.99.
        pub gamma: f64 = 0.99,
        /// The probability of a random action. Default: from 1 to 0.05.
        pub epsilon: Annealed = Annealed::Linear(1.0, 0.05),
        /// The share of the training after which `epsilon` no longer changes. Default: 0.5.
        pub exploration_fraction: f64 = 0.5,
        /// The greatest norm of all gradients together; `None` does not clip. Default: `None`.
        pub max_grad_norm: Option<f64> = None,
        /// Whether to use the Huber loss (half the squared error below 1, the absolute error less ½ above) instead of
        /// the squared error. Default: false.
        pub huber: bool = false,
        /// Whether the network, not its target, chooses the action whose value the target estimates for the next
        /// observation. Default: false.
        ///
        /// Source: van Hasselt et al., "Deep reinforcement learning with double Q-learning" (2016).
        pub double: bool = false,
        /// Whether the network computes the value of a state and the advantages of actions separately. Default: false.
        ///
        /// Source: Wang et al., "Dueling network architectures for deep reinforcement learning" (2016).
        pub dueling: bool = false,
        /// Steps of a transition. Default: 1.
        pub n_step: usize = 1,
        /// How transitions are prioritized by their errors. Default: `None`, sampled uniformly.
        pub prioritized: Option<PriorityConfig> = None,
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
                ("max_grad_norm", self.max_grad_norm.is_none_or(is_bound), "above 0"),
            ])?;
            self.prioritized.as_ref().map_or(Ok(()), PriorityConfig::check)
        });
        checked.map_err(|error| error.with_op("DQN"))
    }

    pub(super) fn pace(&self) -> Pace {
        pace!(self, n_step: self.n_step)
    }
}
