//! Options of SAC.

use polygrad_nn::defaults;
use polygrad_tensor::Result;
use serde::{Deserialize, Serialize};

use crate::off_policy::{Pace, pace};
use crate::policy::StateDependent;
use crate::ranges::{in_range, is_bound, is_rate, is_share};
use crate::{Annealed, ExplorationNoise};

/// Stable-Baselines3's.
const LOG_STD_INIT: f64 = -3.0;

defaults! {
    /// Options of [`Sac`](super::Sac). The defaults are those of CleanRL's `sac_continuous_action.py`.
    ///
    /// ```
    /// use polygrad_rl::SacConfig;
    ///
    /// let config = SacConfig { total_steps: 20_000, learning_rate: 1e-3.into(), ..SacConfig::default() };
    /// # assert_eq!(config.policy_frequency, 2);
    /// ```
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SacConfig {
        /// Seed of the random numbers; the same seed gives the same training. Default: 0.
        pub seed: u64 = 0,
        /// Steps of all environments together in the whole training, over which values are annealed. Default:
        /// 1,000,000.
        pub total_steps: u64 = 1_000_000,
        /// The learning rate of the policy. Default: 3e-4.
        pub learning_rate: Annealed = 3e-4.into(),
        /// The learning rate of the critics, and of the temperature. Default: 1e-3.
        pub critic_learning_rate: Annealed = 1e-3.into(),
        /// The most transitions that are kept. Default: 1,000,000.
        pub buffer_size: usize = 1_000_000,
        /// Transitions per step of the optimizer. Default: 256.
        pub batch_size: usize = 256,
        /// Steps of all environments together before the first step of the optimizer; actions are random until then.
        /// Default: 5,000.
        pub learning_starts: u64 = 5_000,
        /// Steps of each environment between two trainings. Default: 1.
        pub train_frequency: usize = 1,
        /// Steps of the critics per training. Default: 1.
        pub gradient_steps: usize = 1,
        /// Steps of the critics after which the policy takes the same number of steps in a row. Default: 2.
        pub policy_frequency: u64 = 2,
        /// The discount of a reward one step later. Default: 0.99.
        pub gamma: f64 = 0.99,
        /// How far the targets move towards the critics after each step, as a share of the difference. Default: 0.005.
        pub tau: f64 = 0.005,
        /// The weight of entropy relative to rewards. Default: `None`, and it is learned, starting at 1.
        pub temperature: Option<f64> = None,
        /// The target entropy, in nats, of a learned temperature. Default: `None`, and it is minus the length of an
        /// action.
        pub target_entropy: Option<f64> = None,
        /// Noise that is added to the sampled actions in training. Default: none.
        pub exploration_noise: Option<ExplorationNoise> = None,
        /// Whether actions are drawn by [noise that depends on the state](crate::StateDependentNoise). Default: no.
        pub use_sde: bool = false,
        /// With `use_sde`, steps of each environment after which other noise is drawn; −1 if that is done only at the
        /// beginning of each `train_frequency` steps, as it is in any case. Default: −1.
        pub sde_sample_freq: i64 = -1,
        /// With `use_sde`, the logarithm of the standard deviations that the noise begins with. Default: −3.
        pub log_std_init: f64 = LOG_STD_INIT,
    }
}

impl SacConfig {
    /// Fails if an option is out of range for `rows`, the number of environments.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self, rows: usize) -> Result<()> {
        let checked = self.pace().check(rows).and_then(|()| {
            in_range(&[
                ("learning_rate", self.learning_rate.all(is_rate), "at least 0"),
                (
                    "critic_learning_rate",
                    self.critic_learning_rate.all(is_rate),
                    "at least 0",
                ),
                ("policy_frequency", self.policy_frequency > 0, "at least 1"),
                ("tau", is_share(self.tau), "from 0 to 1"),
                ("temperature", self.temperature.is_none_or(is_bound), "above 0"),
                (
                    "exploration_noise",
                    self.exploration_noise.is_none_or(ExplorationNoise::makes_sense),
                    "at least 0",
                ),
                (
                    "target_entropy",
                    self.target_entropy.is_none_or(f64::is_finite),
                    "a number",
                ),
            ])
        });
        let checked = checked.and_then(|()| {
            let sde = StateDependent {
                use_sde: self.use_sde,
                sample_freq: self.sde_sample_freq,
                log_std_init: (self.log_std_init, LOG_STD_INIT),
            };
            sde.check()
        });
        checked.map_err(|error| error.with_op("SAC"))
    }

    pub(super) fn pace(&self) -> Pace {
        pace!(self, n_step: 1)
    }
}
