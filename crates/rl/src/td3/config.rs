//! Options of TD3.

use polygrad_nn::defaults;
use polygrad_tensor::Result;
use serde::{Deserialize, Serialize};

use crate::off_policy::{Pace, pace};
use crate::ranges::{in_range, is_rate, is_share};
use crate::{Annealed, ExplorationNoise};

defaults! {
    /// Options of [`Td3`](super::Td3). The defaults are those of CleanRL's `td3_continuous_action.py`.
    ///
    /// ```
    /// use polygrad_rl::{ExplorationNoise, Td3Config};
    ///
    /// let config = Td3Config {
    ///     exploration_noise: ExplorationNoise::OrnsteinUhlenbeck(0.5),
    ///     ..Td3Config::default()
    /// };
    /// # assert_eq!(config.policy_frequency, 2);
    /// ```
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Td3Config {
        /// Seed of the random numbers; the same seed gives the same training. Default: 0.
        pub seed: u64 = 0,
        /// Steps of all environments together in the whole training, over which values are annealed. Default:
        /// 1,000,000.
        pub total_steps: u64 = 1_000_000,
        /// The learning rate. Default: 3e-4.
        pub learning_rate: Annealed = 3e-4.into(),
        /// The most transitions that are kept. Default: 1,000,000.
        pub buffer_size: usize = 1_000_000,
        /// Transitions per step of the optimizer. Default: 256.
        pub batch_size: usize = 256,
        /// Steps of all environments together before the first step of the optimizer; actions are random until then.
        /// Default: 25,000.
        pub learning_starts: u64 = 25_000,
        /// Steps of each environment between two trainings. Default: 1.
        pub train_frequency: usize = 1,
        /// Steps of the critics per training. Default: 1.
        pub gradient_steps: usize = 1,
        /// Steps of the critics per step of the policy, after which the targets follow. Default: 2.
        pub policy_frequency: u64 = 2,
        /// The discount of a reward one step later. Default: 0.99.
        pub gamma: f64 = 0.99,
        /// How far the targets move each time, as a share of the difference. Default: 0.005.
        pub tau: f64 = 0.005,
        /// The noise that is added to actions in training. Default: normal numbers with a standard deviation of 0.1.
        pub exploration_noise: ExplorationNoise = ExplorationNoise::Gaussian(0.1),
        /// The standard deviation of the noise that is added to the next actions before they are valued, in units of
        /// half an action's range. Default: 0.2.
        pub policy_noise: f64 = 0.2,
        /// The bound at which this noise is clipped. Default: 0.5.
        pub noise_clip: f64 = 0.5,
    }
}

impl Td3Config {
    /// Fails if an option is out of range for `rows`, the number of environments.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self, rows: usize) -> Result<()> {
        let checked = self.pace().check(rows).and_then(|()| {
            in_range(&[
                ("learning_rate", self.learning_rate.all(is_rate), "at least 0"),
                ("policy_frequency", self.policy_frequency > 0, "at least 1"),
                ("tau", is_share(self.tau), "from 0 to 1"),
                ("exploration_noise", self.exploration_noise.makes_sense(), "at least 0"),
                ("policy_noise", is_rate(self.policy_noise), "at least 0"),
                ("noise_clip", is_rate(self.noise_clip), "at least 0"),
            ])
        });
        checked.map_err(|error| error.with_op("TD3"))
    }

    pub(super) fn pace(&self) -> Pace {
        pace!(self, n_step: 1)
    }
}
