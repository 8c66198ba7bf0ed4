//! Options of imitation learning.

use polygrad_nn::defaults;
use polygrad_tensor::Result;
use serde::{Deserialize, Serialize};

use crate::Annealed;
use crate::off_policy::Pace;
use crate::ranges::{in_range, is_bound, is_rate, is_share};

defaults! {
    /// Options of [`BehaviorCloning`](super::BehaviorCloning). `batch_size`, `learning_rate` and the weights have the
    /// defaults of `BC` in the package imitation.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct BcConfig {
        /// Seed of the random numbers; the same seed gives the same training. Default: 0.
        pub seed: u64 = 0,
        /// Steps of all environments together in the whole training, which measure its returns. Default: 50,000.
        pub total_steps: u64 = 50_000,
        /// The learning rate. Default: 1e-3.
        pub learning_rate: Annealed = 1e-3.into(),
        /// Demonstrated steps per step of the optimizer. Default: 32.
        pub batch_size: usize = 32,
        /// Steps of each environment between two trainings. Default: 64.
        pub train_frequency: usize = 64,
        /// Steps of the optimizer per training. Default: 64.
        pub gradient_steps: usize = 64,
        /// The weight of entropy in the loss. Default: 1e-3.
        pub ent_weight: f64 = 1e-3,
        /// The weight of half the sum of all squared weights in the loss. Default: 0.
        pub l2_weight: f64 = 0.0,
    }
}

impl BcConfig {
    /// Fails if an option is out of range for `rows`, the number of environments.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self, rows: usize) -> Result<()> {
        let checked = in_range(&[("batch_size", self.batch_size > 0, "at least 1")]);
        let checked = checked.and_then(|()| self.pace().check(rows)).and_then(|()| {
            in_range(&[
                ("learning_rate", self.learning_rate.all(is_rate), "at least 0"),
                ("ent_weight", is_rate(self.ent_weight), "at least 0"),
                ("l2_weight", is_rate(self.l2_weight), "at least 0"),
            ])
        });
        checked.map_err(|error| error.with_op("BC"))
    }

    /// Nothing is learned from the steps in the environments, so that the buffer need not keep them.
    pub(super) fn pace(&self) -> Pace {
        Pace {
            seed: self.seed,
            total_steps: self.total_steps,
            buffer_size: 1,
            batch_size: 1,
            learning_starts: 0,
            train_frequency: self.train_frequency,
            gradient_steps: self.gradient_steps,
            n_step: 1,
            gamma: 1.0,
        }
    }
}

defaults! {
    /// Options of [`Distillation`](super::Distillation).
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct DistillConfig {
        /// Seed of the random numbers; the same seed gives the same training. Default: 0.
        pub seed: u64 = 0,
        /// Steps of all environments together in the whole training, over which values are annealed. Default: 50,000.
        pub total_steps: u64 = 50_000,
        /// The learning rate. Default: from 1e-2 to 0.
        pub learning_rate: Annealed = Annealed::Linear(1e-2, 0.0),
        /// The most steps that are kept. Default: 50,000.
        pub buffer_size: usize = 50_000,
        /// Stored steps per step of the optimizer. Default: 64.
        pub batch_size: usize = 64,
        /// Steps of all environments together before the first step of the optimizer. Default: 1,000.
        pub learning_starts: u64 = 1_000,
        /// Steps of each environment between two trainings. Default: 64.
        pub train_frequency: usize = 64,
        /// Steps of the optimizer per training. Default: 64.
        pub gradient_steps: usize = 64,
        /// The probability that the teacher acts instead of the learning policy. Default: from 1 to 0.
        ///
        /// Source: Ross et al., "A reduction of imitation learning and structured prediction to no-regret online
        /// learning" (2011).
        pub beta: Annealed = Annealed::Linear(1.0, 0.0),
        /// The divisor of the teacher's logits. Values below 1 make its preferences clearer, as a DQN's values need it.
        /// Default: 1.
        ///
        /// Source: Rusu et al., "Policy distillation" (2016).
        pub temperature: f64 = 1.0,
    }
}

impl DistillConfig {
    /// Fails if an option is out of range for `rows`, the number of environments.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self, rows: usize) -> Result<()> {
        let checked = self.pace().check(rows).and_then(|()| {
            in_range(&[
                ("learning_rate", self.learning_rate.all(is_rate), "at least 0"),
                ("beta", self.beta.all(is_share), "from 0 to 1"),
                ("temperature", is_bound(self.temperature), "above 0"),
            ])
        });
        checked.map_err(|error| error.with_op("distillation"))
    }

    pub(super) fn pace(&self) -> Pace {
        Pace {
            seed: self.seed,
            total_steps: self.total_steps,
            buffer_size: self.buffer_size,
            batch_size: self.batch_size,
            learning_starts: self.learning_starts,
            train_frequency: self.train_frequency,
            gradient_steps: self.gradient_steps,
            n_step: 1,
            gamma: 1.0,
        }
    }
}
