//! Settings shared by all algorithms with a replay buffer.

use polygrad_tensor::{Error, Result};

use crate::ranges::{in_range, is_share};

/// When to act and when to learn, and from how many transitions.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) seed: u64,
    pub(crate) total_steps: u64,
    pub(crate) buffer_size: usize,
    pub(crate) batch_size: usize,
    pub(crate) learning_starts: u64,
    pub(crate) train_frequency: usize,
    pub(crate) gradient_steps: usize,
    pub(crate) n_step: usize,
    pub(crate) gamma: f64,
}

/// The pace of a config whose settings have the usual names, for transitions of `n_step` steps.
macro_rules! pace {
    ($config:expr, n_step: $n_step:expr) => {
        $crate::off_policy::Pace {
            seed: $config.seed,
            total_steps: $config.total_steps,
            buffer_size: $config.buffer_size,
            batch_size: $config.batch_size,
            learning_starts: $config.learning_starts,
            train_frequency: $config.train_frequency,
            gradient_steps: $config.gradient_steps,
            n_step: $n_step,
            gamma: $config.gamma,
        }
    };
}
pub(crate) use pace;

impl Pace {
    /// Fails if a setting is out of range for `rows`, the number of environments.
    pub(crate) fn check(&self, rows: usize) -> Result<()> {
        let counts = [
            ("buffer_size", self.buffer_size),
            ("batch_size", self.batch_size),
            ("train_frequency", self.train_frequency),
            ("gradient_steps", self.gradient_steps),
            ("n_step", self.n_step),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(Error::invalid(format!("{name} is 0")));
        }
        if self.batch_size > self.buffer_size {
            let sizes = format!(
                "batch_size {} is more than buffer_size {}",
                self.batch_size, self.buffer_size
            );
            return Err(Error::invalid(sizes).with_hint("take a smaller batch_size, or a larger buffer_size"));
        }
        if self.learning_starts >= self.total_steps {
            let sizes = format!(
                "learning_starts {} is not below total_steps {}",
                self.learning_starts, self.total_steps
            );
            return Err(Error::invalid(sizes + ", so nothing would be learnt")
                .with_hint("take more total_steps, or a smaller learning_starts"));
        }
        in_range(&[("gamma", is_share(self.gamma), "from 0 to 1")])?;
        match rows.checked_mul(self.train_frequency) {
            Some(_) => Ok(()),
            None => Err(Error::invalid(format!(
                "{rows} times {} steps are too many",
                self.train_frequency
            ))),
        }
    }

    pub(crate) fn steps_per_iteration(&self, rows: usize) -> u64 {
        (rows * self.train_frequency) as u64
    }
}
