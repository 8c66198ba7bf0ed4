use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::RunningMeanStd;
use super::running::{BLOCK, check_finite, check_rows};
use crate::vector::check_len;

/// Added under the square root, so that no division is by 0.
const EPSILON: f64 = 1e-8;

/// Observations minus their running mean, divided by their running standard deviation, with Gymnasium's arithmetic:
/// statistics in f64, and 1e-8 under the square root.
///
/// Serde saves and restores it bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationNormalizer {
    statistics: RunningMeanStd,
    clip: Option<Bound>,
}

impl ObservationNormalizer {
    /// For rows of `width` numbers, before the first observation.
    pub fn new(width: usize) -> Self {
        Self {
            statistics: RunningMeanStd::new(width),
            clip: None,
        }
    }

    /// Clips normalized observations to −`bound` and `bound`; 10 is usual.
    ///
    /// # Errors
    /// If `bound` is not above 0.
    pub fn clip(mut self, bound: f32) -> Result<Self> {
        self.clip = Some(Bound::try_from(bound)?);
        Ok(self)
    }

    /// The bound of normalized observations; infinite without [`clip`](Self::clip).
    pub fn bound(&self) -> f32 {
        self.clip.map_or(f32::INFINITY, f32::from)
    }

    /// The length of a row.
    pub fn width(&self) -> usize {
        self.statistics.mean().len()
    }

    /// The statistics so far.
    pub fn statistics(&self) -> &RunningMeanStd {
        &self.statistics
    }

    pub(crate) fn statistics_mut(&mut self) -> &mut RunningMeanStd {
        &mut self.statistics
    }

    /// The mean of each number.
    pub fn mean(&self) -> &[f64] {
        self.statistics.mean()
    }

    /// The variance of each number.
    pub fn var(&self) -> &[f64] {
        self.statistics.var()
    }

    /// Adds observations to the statistics, whole rows one after another.
    ///
    /// # Errors
    /// If their number is not a whole number of rows, or one is NaN or infinite.
    pub fn update(&mut self, observations: &[f32]) -> Result<()> {
        self.statistics.update(observations)
    }

    /// Normalizes observations, whole rows one after another, by the statistics so far.
    ///
    /// # Errors
    /// If their number is not a whole number of rows.
    pub fn normalize(&self, observations: &mut [f32]) -> Result<()> {
        check_rows(observations, self.width())?;
        let bound = self.bound();
        let blocks = self.mean().chunks(BLOCK).zip(self.var().chunks(BLOCK));
        for (block, (mean, var)) in blocks.enumerate() {
            let columns = block * BLOCK..block * BLOCK + mean.len();
            let mut stds = [0.0; BLOCK];
            for (std, var) in stds.iter_mut().zip(var) {
                *std = (var + EPSILON).sqrt();
            }
            for row in observations.chunks_exact_mut(self.width()) {
                for ((x, mean), std) in row[columns.clone()].iter_mut().zip(mean).zip(&stds) {
                    *x = (((f64::from(*x) - mean) / std) as f32).clamp(-bound, bound);
                }
            }
        }
        Ok(())
    }
}

/// Rewards divided by the running standard deviation of the discounted return, with Gymnasium's arithmetic: statistics
/// in f64, and 1e-8 under the square root.
///
/// Serde saves and restores it bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SavedRewards")]
pub struct RewardNormalizer {
    statistics: RunningMeanStd,
    returns: Vec<f64>,
    gamma: f64,
    clip: Option<Bound>,
    frozen: bool,
}

/// Deserialized data, not yet checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedRewards {
    statistics: RunningMeanStd,
    returns: Vec<f64>,
    gamma: f64,
    clip: Option<Bound>,
    frozen: bool,
}

impl TryFrom<SavedRewards> for RewardNormalizer {
    type Error = Error;

    fn try_from(saved: SavedRewards) -> Result<Self> {
        if saved.statistics.mean().len() != 1 {
            let means = saved.statistics.mean().len();
            return Err(Error::shape(format!("returns have one mean, not {means}")));
        }
        if let Some(total) = saved.returns.iter().find(|total| !total.is_finite()) {
            return Err(Error::invalid(format!("a row has a return of {total}")));
        }
        Ok(Self {
            statistics: saved.statistics,
            returns: saved.returns,
            gamma: checked_gamma(saved.gamma)?,
            clip: saved.clip,
            frozen: saved.frozen,
        })
    }
}

impl RewardNormalizer {
    /// For `rows` rows, whose returns are discounted by `gamma`, like those that the policy learns from; 0.99 is usual.
    ///
    /// # Errors
    /// If `gamma` is not from 0 to 1.
    pub fn new(rows: usize, gamma: f64) -> Result<Self> {
        Ok(Self {
            statistics: RunningMeanStd::new(1),
            returns: vec![0.0; rows],
            gamma: checked_gamma(gamma)?,
            clip: None,
            frozen: false,
        })
    }

    /// Clips normalized rewards to −`bound` and `bound`; 10 is usual.
    ///
    /// # Errors
    /// If `bound` is not above 0.
    pub fn clip(mut self, bound: f32) -> Result<Self> {
        self.clip = Some(Bound::try_from(bound)?);
        Ok(self)
    }

    /// If `frozen`, the statistics no longer change, for example in an evaluation.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.returns.len()
    }

    /// Mean and variance of discounted returns, as rows of one number.
    pub fn statistics(&self) -> &RunningMeanStd {
        &self.statistics
    }

    pub(crate) fn statistics_mut(&mut self) -> &mut RunningMeanStd {
        &mut self.statistics
    }

    /// The discounted return of each row's episode so far.
    pub fn returns(&self) -> &[f64] {
        &self.returns
    }

    /// Begins all episodes. The statistics stay.
    pub fn reset(&mut self) {
        self.returns.fill(0.0);
    }

    /// Adds the rewards of a step of all rows to the statistics, and normalizes them.
    ///
    /// The return restarts after the end of an episode. In the step that terminates an episode, the return is only that
    /// step's reward, as in Gymnasium.
    ///
    /// # Errors
    /// If a slice does not have one entry per row, or a reward is NaN or infinite; nothing is changed then.
    pub fn apply(&mut self, rewards: &mut [f32], terminated: &[bool], truncated: &[bool]) -> Result<()> {
        check_len("rewards", rewards.len(), self.rows())?;
        check_len("terminated", terminated.len(), self.rows())?;
        check_len("truncated", truncated.len(), self.rows())?;
        check_finite(rewards)?;
        for (row, total) in self.returns.iter_mut().enumerate() {
            let kept = if terminated[row] { 0.0 } else { *total * self.gamma };
            *total = kept + f64::from(rewards[row]);
        }
        if !self.frozen {
            self.statistics.see(&self.returns);
        }
        let std = (self.statistics.var()[0] + EPSILON).sqrt();
        let bound = self.clip.map_or(f32::INFINITY, f32::from);
        for (row, total) in self.returns.iter_mut().enumerate() {
            rewards[row] = ((f64::from(rewards[row]) / std) as f32).clamp(-bound, bound);
            if terminated[row] || truncated[row] {
                *total = 0.0;
            }
        }
        Ok(())
    }
}

fn checked_gamma(gamma: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&gamma) {
        return Ok(gamma);
    }
    Err(Error::invalid(format!("the discount {gamma:?} is not from 0 to 1")))
}

/// A clipping bound, which is above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f32", into = "f32")]
struct Bound(f32);

impl From<Bound> for f32 {
    fn from(Bound(bound): Bound) -> Self {
        bound
    }
}

impl TryFrom<f32> for Bound {
    type Error = Error;

    fn try_from(bound: f32) -> Result<Self> {
        if bound > 0.0 && bound.is_finite() {
            return Ok(Self(bound));
        }
        Err(Error::invalid(format!("values cannot be cut off at {bound}")).with_hint("use a bound above 0, such as 10"))
    }
}
