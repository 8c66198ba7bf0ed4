use polygrad_core::{Error, Result};
use serde_json::Value;

use super::{as_inside, nested, opened};
use crate::{ObservationNormalizer, RewardNormalizer, Space, StepSlices, VectorEnv};

/// Observations minus their running mean, divided by their running standard deviation, like Gymnasium's wrapper of the
/// same name.
///
/// All rows share one [`ObservationNormalizer`]. Every observation of a reset or step is added to the statistics before
/// it is normalized; final observations are normalized, but not added. There are no groups, so that the statistics do
/// not depend on the order in which groups step.
#[derive(Clone, Debug)]
pub struct NormalizeObservation<V> {
    env: V,
    space: Space,
    normalizer: ObservationNormalizer,
    frozen: bool,
}

impl<V: VectorEnv> NormalizeObservation<V> {
    /// With statistics before the first observation.
    ///
    /// # Errors
    /// If the observation space is not a box.
    pub fn new(env: V) -> Result<Self> {
        let Space::Box { shape, .. } = env.observation_space() else {
            let message = format!("observations of {:?} have no mean", env.observation_space());
            return Err(Error::invalid(message).with_hint("only a `Space::Box` can be normalized"));
        };
        Ok(Self {
            space: Space::boxed_in(f32::NEG_INFINITY, f32::INFINITY, shape),
            normalizer: ObservationNormalizer::new(env.observation_space().len()),
            env,
            frozen: false,
        })
    }

    /// Clips normalized observations to −`bound` and `bound`; 10 is usual.
    ///
    /// # Errors
    /// If `bound` is not above 0.
    pub fn clip(mut self, bound: f32) -> Result<Self> {
        let normalizer = self.normalizer.clone().clip(bound)?;
        self.set_normalizer(normalizer)?;
        Ok(self)
    }

    /// If `frozen`, the statistics no longer change, for example in an evaluation.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// The statistics so far, to be saved, or used for a policy elsewhere.
    pub fn normalizer(&self) -> &ObservationNormalizer {
        &self.normalizer
    }

    /// Continues with a saved normalizer, with its statistics and its bound.
    ///
    /// # Errors
    /// If it is for another observation length.
    pub fn set_normalizer(&mut self, normalizer: ObservationNormalizer) -> Result<()> {
        self.check(&normalizer)?;
        if let Space::Box { low, high, .. } = &mut self.space {
            low.fill(-normalizer.bound());
            high.fill(normalizer.bound());
        }
        self.normalizer = normalizer;
        Ok(())
    }

    /// The environments inside.
    pub fn env(&self) -> &V {
        &self.env
    }

    /// The same, mutable.
    pub fn env_mut(&mut self) -> &mut V {
        &mut self.env
    }

    fn check(&self, normalizer: &ObservationNormalizer) -> Result<()> {
        let (width, expected) = (normalizer.width(), self.space.len());
        if width == expected {
            return Ok(());
        }
        Err(Error::shape(format!(
            "the normalizer is of {width} numbers, but {expected} are observed"
        )))
    }

    fn see(&mut self, observations: &mut [f32]) -> Result<()> {
        if !self.frozen {
            self.normalizer.update(observations)?;
        }
        self.normalizer.normalize(observations)
    }
}

impl<V: VectorEnv> VectorEnv for NormalizeObservation<V> {
    as_inside!(num_envs -> usize, agents -> usize, action_space -> &Space, action_masks -> Option<&[bool]>,
        begun -> Option<&[bool]>, begins_anew -> bool);

    fn observation_space(&self) -> &Space {
        &self.space
    }

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.env.reset(seed, observations)?;
        self.see(observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.env.step(actions, out)?;
        self.see(out.observations)?;
        let width = self.space.len();
        for row in (0..out.rewards.len()).filter(|row| out.terminated[*row] || out.truncated[*row]) {
            self.normalizer
                .normalize(&mut out.final_observations[row * width..(row + 1) * width])?;
        }
        Ok(())
    }

    fn take_notices(&mut self) -> Vec<String> {
        self.env.take_notices()
    }

    fn state(&self) -> Result<Value> {
        nested(OBSERVATION, &(&self.normalizer, self.frozen), &self.env)
    }

    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        let ((normalizer, frozen), inside): ((ObservationNormalizer, bool), _) = opened(OBSERVATION, state)?;
        self.check(&normalizer)?;
        self.env.restore(inside, observations)?;
        self.frozen = frozen;
        self.set_normalizer(normalizer)?;
        // The restored observations were added to the statistics before they were saved.
        self.normalizer.normalize(observations)
    }
}

const OBSERVATION: &str = "NormalizeObservation";

/// Rewards divided by the running standard deviation of the discounted return, like Gymnasium's wrapper of the same
/// name.
///
/// All rows share one [`RewardNormalizer`], and there are no groups.
#[derive(Clone, Debug)]
pub struct NormalizeReward<V> {
    env: V,
    normalizer: RewardNormalizer,
}

impl<V: VectorEnv> NormalizeReward<V> {
    /// Returns are discounted by `gamma`, like those that the policy learns from; 0.99 is usual.
    ///
    /// # Errors
    /// If `gamma` is not from 0 to 1.
    pub fn new(env: V, gamma: f64) -> Result<Self> {
        let normalizer = RewardNormalizer::new(env.rows(), gamma)?;
        Ok(Self { env, normalizer })
    }

    /// Clips normalized rewards to −`bound` and `bound`; 10 is usual.
    ///
    /// # Errors
    /// If `bound` is not above 0.
    pub fn clip(mut self, bound: f32) -> Result<Self> {
        self.normalizer = self.normalizer.clip(bound)?;
        Ok(self)
    }

    /// If `frozen`, the statistics no longer change, for example in an evaluation.
    pub fn freeze(&mut self, frozen: bool) {
        self.normalizer.freeze(frozen);
    }

    /// The state to be saved.
    pub fn normalizer(&self) -> &RewardNormalizer {
        &self.normalizer
    }

    /// Continues with a saved normalizer, with its statistics, discount and bound.
    ///
    /// # Errors
    /// If it is for another number of rows.
    pub fn set_normalizer(&mut self, normalizer: RewardNormalizer) -> Result<()> {
        self.check(&normalizer)?;
        self.normalizer = normalizer;
        Ok(())
    }

    fn check(&self, normalizer: &RewardNormalizer) -> Result<()> {
        let (rows, expected) = (normalizer.rows(), self.env.rows());
        if rows == expected {
            return Ok(());
        }
        Err(Error::shape(format!(
            "the normalizer is of {rows} rows, the environments have {expected}"
        )))
    }

    /// The environments inside.
    pub fn env(&self) -> &V {
        &self.env
    }

    /// The same, mutable.
    pub fn env_mut(&mut self) -> &mut V {
        &mut self.env
    }
}

impl<V: VectorEnv> VectorEnv for NormalizeReward<V> {
    as_inside!(num_envs -> usize, agents -> usize, observation_space -> &Space, action_space -> &Space, action_masks -> Option<&[bool]>,
        begun -> Option<&[bool]>, begins_anew -> bool);

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.normalizer.reset();
        self.env.reset(seed, observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.env.step(actions, out)?;
        self.normalizer.apply(out.rewards, out.terminated, out.truncated)
    }

    fn take_notices(&mut self) -> Vec<String> {
        self.env.take_notices()
    }

    fn state(&self) -> Result<Value> {
        nested(REWARD, &self.normalizer, &self.env)
    }

    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        let (normalizer, inside) = opened(REWARD, state)?;
        self.check(&normalizer)?;
        self.env.restore(inside, observations)?;
        self.normalizer = normalizer;
        if self.env.begins_anew() {
            self.normalizer.reset();
        }
        Ok(())
    }
}

const REWARD: &str = "NormalizeReward";
