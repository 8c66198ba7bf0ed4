//! Options of PPO.

use polygrad_nn::defaults;
use polygrad_tensor::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::Annealed;
use crate::policy::StateDependent;
use crate::ranges::{in_range, is_bound, is_rate, is_share, rollout_steps};

/// Over which advantages, always those of one rank, the normalization to mean 0 and standard deviation 1 is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvantageNorm {
    /// No normalization.
    None,
    /// Over a minibatch, in each step of the optimizer.
    #[default]
    Minibatch,
    /// Over a rollout.
    Batch,
}

defaults! {
    /// Options of [`Ppo`](super::Ppo). The defaults are those of CleanRL's `ppo.py`, except that an episode cut short
    /// by a time limit is bootstrapped.
    ///
    /// ```
    /// use polygrad_rl::{Annealed, PpoConfig};
    ///
    /// let config = PpoConfig {
    /// total_steps: 100_000,
    /// num_steps: 32,
    /// clip: Annealed::Linear(0.2, 0.0),
    /// ..PpoConfig::default()
    /// };
    /// # assert!(config.clip.at(0.5) == 0.1);
    /// ```
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, remote = "Self")]
    pub struct PpoConfig {
        /// Seed of the random numbers; the same seed gives the same training. Default: 0.
        pub seed: u64 = 0,
        /// Steps of all environments of all ranks together in the whole training, over which values are annealed.
        /// Default: 500,000.
        pub total_steps: u64 = 500_000,
        /// Steps of each environment in a rollout. Default: 128.
        pub num_steps: usize = 128,
        /// Parts of a rollout, each of which is one step of the optimizer. Default: 4.
        pub num_minibatches: usize = 4,
        /// Passes over each rollout. Default: 4.
        pub update_epochs: usize = 4,
        /// Length of the sequences on which a policy with memory is trained, each from its recorded state. Default: a
        /// whole rollout.
        pub segment_len: Option<usize> = None,
        /// The learning rate. Default: from 2.5e-4 to 0.
        pub learning_rate: Annealed = Annealed::Linear(2.5e-4, 0.0),
        /// The discount of a reward one step later. Default: 0.99.
        pub gamma: f64 = 0.99,
        /// `λ` of the generalized advantage estimation. Default: 0.95.
        pub gae_lambda: f64 = 0.95,
        /// How far the ratio of probabilities may differ from 1 before it is clipped. Default: 0.2.
        pub clip: Annealed = Annealed::Constant(0.2),
        /// Whether values are clipped too, by the same amount around those of the rollout. Default: true.
        pub clip_value: bool = true,
        /// The weight of the entropy. Default: 0.01.
        pub entropy_coefficient: Annealed = Annealed::Constant(0.01),
        /// The weight of the value loss, which is half the squared error. Default: 0.5.
        pub value_coefficient: f64 = 0.5,
        /// The greatest norm of all gradients together. Default: 0.5.
        pub max_grad_norm: f64 = 0.5,
        /// If the divergence from the rollout's policy exceeds this, no further epoch follows. Default: none.
        pub target_kl: Option<f64> = None,
        /// Whether advantages are normalized, and over what. Default: over minibatches.
        pub normalize_advantages: AdvantageNorm = AdvantageNorm::Minibatch,
        /// The bound at which observations are clipped after normalization by their running mean and variance. Default:
        /// not normalized.
        pub normalize_observations: Option<f64> = None,
        /// The bound at which rewards are clipped after division by the running standard deviation of discounted
        /// returns. Default: not normalized.
        pub normalize_rewards: Option<f64> = None,
        /// Whether the value of the last observation replaces the rewards after a time limit. Default: true; CleanRL
        /// takes them as 0.
        ///
        /// Source: Pardo et al., "Time limits in reinforcement learning" (2018).
        pub bootstrap_truncated: bool = true,
        /// Whether actions are drawn by [noise that depends on the state](crate::StateDependentNoise), for a policy
        /// that was made with [`use_sde`](crate::ActorCritic::use_sde). Default: no.
        pub use_sde: bool = false,
        /// With `use_sde`, steps of each environment after which other noise is drawn; −1 if that is done only at the
        /// beginning of each rollout, as it is in any case. Default: −1.
        pub sde_sample_freq: i64 = -1,
        /// With `use_sde`, the logarithm of the standard deviations that the noise of a new policy begins with.
        /// Default: 0.
        pub log_std_init: f64 = 0.0,
    }
}

impl Serialize for PpoConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PpoConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let mut all = Value::deserialize(deserializer)?;
        if let Some(all) = all.as_object_mut() {
            // Runs from before 2026-11-30 name two settings that were removed, mostly with the values that changed
            // nothing.
            for (name, neutral) in [("v_trace", Value::Null), ("optimizer", json!("adam"))] {
                if all.remove(name).is_some_and(|value| value != neutral) {
                    return Err(D::Error::custom(format!(
                        "{name} is a setting that was removed: leave it out (decision 168)"
                    )));
                }
            }
        }
        Self::deserialize(all).map_err(D::Error::custom)
    }
}

impl PpoConfig {
    /// Exactly the options of CleanRL's `ppo.py`: an episode cut short by a time limit counts as ended.
    pub fn cleanrl() -> Self {
        Self {
            bootstrap_truncated: false,
            ..Self::default()
        }
    }

    /// Fails if an option is out of range for this number of environment rows.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self, rows: usize) -> Result<()> {
        let counts = [
            ("num_steps", self.num_steps),
            ("num_minibatches", self.num_minibatches),
            ("update_epochs", self.update_epochs),
            ("segment_len", self.segment_len.unwrap_or(1)),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(wrong(format!("{name} is 0")));
        }
        let some_bound = |x: Option<f64>| x.is_none_or(is_bound);
        let ranges = in_range(&[
            ("gamma", is_share(self.gamma), "from 0 to 1"),
            ("gae_lambda", is_share(self.gae_lambda), "from 0 to 1"),
            ("learning_rate", self.learning_rate.all(is_rate), "at least 0"),
            ("clip", self.clip.all(is_rate), "at least 0"),
            (
                "entropy_coefficient",
                self.entropy_coefficient.all(f64::is_finite),
                "finite",
            ),
            ("value_coefficient", is_rate(self.value_coefficient), "at least 0"),
            ("max_grad_norm", is_bound(self.max_grad_norm), "above 0"),
            ("target_kl", some_bound(self.target_kl), "above 0"),
            (
                "normalize_observations",
                some_bound(self.normalize_observations),
                "above 0",
            ),
            ("normalize_rewards", some_bound(self.normalize_rewards), "above 0"),
        ]);
        ranges.map_err(|error| error.with_op("PPO"))?;
        let sde = StateDependent {
            use_sde: self.use_sde,
            sample_freq: self.sde_sample_freq,
            log_std_init: (self.log_std_init, 0.0),
        };
        sde.check().map_err(|error| error.with_op("PPO"))?;
        let segment = self.segment_len.unwrap_or(1);
        if !self.num_steps.is_multiple_of(segment) {
            return Err(wrong(format!(
                "a rollout of {} steps is not cut into segments of {segment}",
                self.num_steps
            )));
        }
        rollout_steps(rows, self.num_steps).map_err(|error| error.with_op("PPO"))?;
        Ok(())
    }
}

pub(super) fn wrong(message: String) -> Error {
    Error::invalid(message).with_op("PPO")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_were_removed_are_read_where_they_changed_nothing() {
        let read = |extra: &str| {
            let text = format!("{{\"gamma\": 0.5, {extra}}}");
            serde_json::from_str::<PpoConfig>(&text).map_err(|error| error.to_string())
        };
        let config = read("\"v_trace\": null, \"optimizer\": \"adam\"").unwrap();
        assert_eq!(
            config,
            PpoConfig {
                gamma: 0.5,
                ..PpoConfig::default()
            }
        );
        assert_eq!(serde_json::from_value(json!(config)).ok(), Some(config));
        for (extra, name) in [
            (
                "\"v_trace\": {\"rho_bar\": 1.0, \"c_bar\": 1.0}",
                "v_trace is a setting that was removed",
            ),
            (
                "\"optimizer\": {\"muon\": 0.02}",
                "optimizer is a setting that was removed",
            ),
            ("\"gama\": 0.5", "gama"),
        ] {
            assert!(read(extra).unwrap_err().contains(name), "{extra}");
        }
    }
}
