use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{RunningMeanStd, as_inside};
use crate::{Space, StepSlices, VectorEnv};

/// Below the root, so that nothing is divided by 0.
const EPSILON: f64 = 1e-8;

/// Observations less their running mean, divided by their running standard deviation, as Gymnasium's wrapper of the same name.
///
/// All rows share the statistics, which are f64. Every observation of a reset or step is counted before it is normalized; final
/// observations are normalized, and not counted.
#[derive(Clone, Debug)]
pub struct NormalizeObservation<V> {
    env: V,
    space: Space,
    statistics: RunningMeanStd,
    clip: f32,
    frozen: bool,
}

impl<V: VectorEnv> NormalizeObservation<V> {
    /// Statistics that have seen nothing yet.
    ///
    /// # Errors
    /// When the observation space is no box.
    pub fn new(env: V) -> Result<Self> {
        let Space::Box { shape, .. } = env.observation_space() else {
            let message = format!("observations of {:?} have no mean", env.observation_space());
            return Err(Error::invalid(message).with_hint("only a `Space::Box` can be normalized"));
        };
        Ok(Self {
            space: Space::boxed_in(f32::NEG_INFINITY, f32::INFINITY, shape),
            statistics: RunningMeanStd::new(env.observation_space().len()),
            env,
            clip: f32::INFINITY,
            frozen: false,
        })
    }

    /// Cuts normalized observations off at −`bound` and `bound`; 10 is usual.
    ///
    /// # Errors
    /// When `bound` is not above 0.
    pub fn clip(mut self, bound: f32) -> Result<Self> {
        self.clip = checked_bound(bound)?;
        self.space = match self.space {
            Space::Box { shape, .. } => Space::boxed_in(-bound, bound, &shape),
            other => other,
        };
        Ok(self)
    }

    /// Whether the statistics stay as they are, as in an evaluation.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// What was seen so far: to be saved, or shown to a policy elsewhere.
    pub fn statistics(&self) -> &RunningMeanStd {
        &self.statistics
    }

    /// Goes on from saved statistics.
    ///
    /// # Errors
    /// When they are of another number of observed numbers, or make no sense.
    pub fn set_statistics(&mut self, statistics: RunningMeanStd) -> Result<()> {
        check_statistics(&statistics, self.space.len())?;
        self.statistics = statistics;
        Ok(())
    }

    /// The environments inside.
    pub fn env(&self) -> &V {
        &self.env
    }

    /// The same, to be changed.
    pub fn env_mut(&mut self) -> &mut V {
        &mut self.env
    }

    fn see(&mut self, observations: &mut [f32]) -> Result<()> {
        if !self.frozen {
            self.statistics.update(observations)?;
        }
        self.normalize(observations);
        Ok(())
    }

    fn normalize(&self, rows: &mut [f32]) {
        let width = self.space.len();
        for (column, (mean, var)) in self.statistics.mean().iter().zip(self.statistics.var()).enumerate() {
            let std = (var + EPSILON).sqrt();
            for x in rows.iter_mut().skip(column).step_by(width) {
                *x = (((f64::from(*x) - mean) / std) as f32).clamp(-self.clip, self.clip);
            }
        }
    }
}

impl<V: VectorEnv> VectorEnv for NormalizeObservation<V> {
    as_inside!(num_envs -> usize, agents -> usize, action_space -> &Space);

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
            self.normalize(&mut out.final_observations[row * width..(row + 1) * width]);
        }
        Ok(())
    }
}

/// Rewards divided by the running standard deviation of the discounted return, as Gymnasium's wrapper of the same name.
///
/// All rows share the statistics, which are f64.
#[derive(Clone, Debug)]
pub struct NormalizeReward<V> {
    env: V,
    gamma: f64,
    state: NormalizeRewardState,
    clip: f32,
    frozen: bool,
}

/// What [`NormalizeReward`] goes on from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormalizeRewardState {
    /// Mean and variance of discounted returns: rows of one number.
    pub statistics: RunningMeanStd,
    /// The discounted return of each row's episode so far.
    pub returns: Vec<f64>,
}

impl<V: VectorEnv> NormalizeReward<V> {
    /// Returns are discounted by `gamma`, as those that the policy learns from; 0.99 is usual.
    ///
    /// # Errors
    /// When `gamma` is not from 0 to 1.
    pub fn new(env: V, gamma: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&gamma) {
            return Err(Error::invalid(format!("the discount {gamma} is not from 0 to 1")));
        }
        let state = NormalizeRewardState {
            statistics: RunningMeanStd::new(1),
            returns: vec![0.0; env.rows()],
        };
        Ok(Self {
            env,
            gamma,
            state,
            clip: f32::INFINITY,
            frozen: false,
        })
    }

    /// Cuts normalized rewards off at −`bound` and `bound`; 10 is usual.
    ///
    /// # Errors
    /// When `bound` is not above 0.
    pub fn clip(mut self, bound: f32) -> Result<Self> {
        self.clip = checked_bound(bound)?;
        Ok(self)
    }

    /// Whether the statistics stay as they are, as in an evaluation.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// What it goes on from: to be saved.
    pub fn state(&self) -> &NormalizeRewardState {
        &self.state
    }

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// When it is of another number of rows, or its statistics make no sense.
    pub fn set_state(&mut self, state: NormalizeRewardState) -> Result<()> {
        check_statistics(&state.statistics, 1)?;
        if state.returns.len() != self.state.returns.len() {
            let (rows, expected) = (state.returns.len(), self.state.returns.len());
            return Err(Error::shape(format!(
                "the state is of {rows} rows, the environments have {expected}"
            )));
        }
        if let Some(total) = state.returns.iter().find(|total| !total.is_finite()) {
            return Err(Error::invalid(format!("the state has a return of {total}"))
                .with_hint("take a state that was saved whole"));
        }
        self.state = state;
        Ok(())
    }

    /// The environments inside.
    pub fn env(&self) -> &V {
        &self.env
    }

    /// The same, to be changed.
    pub fn env_mut(&mut self) -> &mut V {
        &mut self.env
    }
}

impl<V: VectorEnv> VectorEnv for NormalizeReward<V> {
    as_inside!(num_envs -> usize, agents -> usize, observation_space -> &Space, action_space -> &Space);

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.state.returns.fill(0.0);
        self.env.reset(seed, observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.env.step(actions, out)?;
        let NormalizeRewardState { statistics, returns } = &mut self.state;
        for (row, total) in returns.iter_mut().enumerate() {
            let kept = if out.terminated[row] { 0.0 } else { *total * self.gamma };
            *total = kept + f64::from(out.rewards[row]);
        }
        if !self.frozen {
            statistics.update_with(returns.len(), |row, _| returns[row]);
        }
        let std = (statistics.var()[0] + EPSILON).sqrt();
        for (row, total) in returns.iter_mut().enumerate() {
            let reward = &mut out.rewards[row];
            *reward = ((f64::from(*reward) / std) as f32).clamp(-self.clip, self.clip);
            if out.terminated[row] || out.truncated[row] {
                *total = 0.0;
            }
        }
        Ok(())
    }
}

fn checked_bound(bound: f32) -> Result<f32> {
    if bound > 0.0 {
        return Ok(bound);
    }
    Err(Error::invalid(format!("values cannot be cut off at {bound}")).with_hint("use a bound above 0, such as 10"))
}

fn check_statistics(statistics: &RunningMeanStd, expected: usize) -> Result<()> {
    let (means, vars) = (statistics.mean().len(), statistics.var().len());
    if means != expected || vars != expected {
        return Err(Error::shape(format!(
            "the statistics have {means} means and {vars} variances, where {expected} are needed"
        )));
    }
    let sound = |var: &f64| var.is_finite() && *var >= 0.0;
    let has_count = statistics.count().is_finite() && statistics.count() > 0.0;
    if !has_count || !statistics.mean().iter().all(|mean| mean.is_finite()) || !statistics.var().iter().all(sound) {
        return Err(
            Error::invalid("the statistics have a count, a mean or a variance that no numbers have")
                .with_hint("take statistics that were saved whole"),
        );
    }
    Ok(())
}
