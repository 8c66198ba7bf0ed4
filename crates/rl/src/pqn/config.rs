//! Options of PQN.

use polygrad_nn::defaults;
use polygrad_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::Annealed;
use crate::off_policy::Pace;
use crate::ranges::{in_range, is_bound, is_rate, is_share, rollout_steps};

defaults! {
    /// Options of [`Pqn`](super::Pqn). The defaults are those of CleanRL's `pqn.py`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct PqnConfig {
        /// Seed of the random numbers; the same seed gives the same training. Default: 0.
        pub seed: u64 = 0,
        /// Steps of all environments together in the whole training, over which values are annealed. Default: 500,000.
        pub total_steps: u64 = 500_000,
        /// Steps of each environment in a rollout. Default: 128.
        pub num_steps: usize = 128,
        /// Parts of a rollout, each of which is one step of the optimizer. Default: 4.
        pub num_minibatches: usize = 4,
        /// Passes over each rollout. Default: 4.
        pub update_epochs: usize = 4,
        /// The learning rate. Default: from 2.5e-4 to 0.
        pub learning_rate: Annealed = Annealed::Linear(2.5e-4, 0.0),
        /// The discount of a reward one step later. Default: 0.99.
        pub gamma: f64 = 0.99,
        /// The weight of later rewards in a target: 0 uses one step, 1 all steps of the rollout. Default: 0.65.
        pub q_lambda: f64 = 0.65,
        /// The probability of a random action. Default: from 1 to 0.05.
        pub epsilon: Annealed = Annealed::Linear(1.0, 0.05),
        /// The share of the training after which `epsilon` no longer changes. Default: 0.5.
        pub exploration_fraction: f64 = 0.5,
        /// The greatest norm of all gradients together. Default: 10.
        pub max_grad_norm: f64 = 10.0,
    }
}

impl PqnConfig {
    /// Fails if an option is out of range for `rows`, the number of environments.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self, rows: usize) -> Result<()> {
        self.checked(rows).map_err(|error| error.with_op("PQN"))
    }

    fn checked(&self, rows: usize) -> Result<()> {
        in_range(&[
            ("num_steps", self.num_steps > 0, "at least 1"),
            ("num_minibatches", self.num_minibatches > 0, "at least 1"),
            ("update_epochs", self.update_epochs > 0, "at least 1"),
            ("q_lambda", is_share(self.q_lambda), "from 0 to 1"),
            ("epsilon", self.epsilon.all(is_share), "from 0 to 1"),
            (
                "exploration_fraction",
                is_share(self.exploration_fraction),
                "from 0 to 1",
            ),
            ("learning_rate", self.learning_rate.all(is_rate), "at least 0"),
            ("max_grad_norm", is_bound(self.max_grad_norm), "above 0"),
        ])?;
        let steps = rollout_steps(rows, self.num_steps)?;
        if !steps.is_multiple_of(self.num_minibatches) {
            return Err(Error::invalid(format!(
                "{steps} steps cannot be cut into {} equal minibatches",
                self.num_minibatches
            ))
            .with_hint("take another number of steps, minibatches or environments"));
        }
        self.pace(rows).check(rows)
    }

    /// The buffer holds one rollout, which is replaced in each iteration.
    pub(super) fn pace(&self, rows: usize) -> Pace {
        let steps = rows * self.num_steps;
        Pace {
            seed: self.seed,
            total_steps: self.total_steps,
            buffer_size: steps,
            batch_size: steps / self.num_minibatches,
            learning_starts: 0,
            train_frequency: self.num_steps,
            gradient_steps: self.update_epochs.saturating_mul(self.num_minibatches),
            n_step: 1,
            gamma: self.gamma,
        }
    }
}
