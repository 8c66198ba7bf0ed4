//! Exploration noise that is added to actions.

use polygrad_core::{Error, ErrorKind, HostTensor, Result, Rng};
use polygrad_nn::{Checkpoint, StateDict};
use serde::{Deserialize, Serialize};

use crate::Space;

/// How a policy's actions are changed in training. Standard deviations are in units of half an action's range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExplorationNoise {
    /// Adds independent normal numbers with this standard deviation in each step.
    Gaussian(f64),
    /// Adds a mean-reverting random walk that continues over the steps of an episode, as Stable-Baselines3's
    /// `OrnsteinUhlenbeckActionNoise` with this `sigma`, a `theta` of 0.15 and a `dt` of 0.01.
    ///
    /// Source: Lillicrap et al., "Continuous control with deep reinforcement learning" (2015).
    OrnsteinUhlenbeck(f64),
}

/// Rate at which the walk returns to 0.
const THETA: f64 = 0.15;
/// Time step of the walk.
const DT: f64 = 0.01;

/// The key of the walks' state in a checkpoint.
const PART: &str = "noise";

/// The noise of all rows.
pub(crate) struct Exploration {
    noise: ExplorationNoise,
    /// The position of each walk, for each action number of each row; empty before the first action.
    walks: Vec<f64>,
}

impl ExplorationNoise {
    pub(crate) fn makes_sense(self) -> bool {
        let (Self::Gaussian(std) | Self::OrnsteinUhlenbeck(std)) = self;
        std.is_finite() && std >= 0.0
    }
}

impl Exploration {
    pub(crate) fn new(noise: ExplorationNoise) -> Self {
        Self {
            noise,
            walks: Vec::new(),
        }
    }

    /// Adds noise to the actions of all rows, and clips them to their bounds.
    pub(crate) fn add(&mut self, actions: &mut [f32], space: &Space, rng: &mut Rng) {
        let Space::Box { low, high, .. } = space else { return };
        self.walks.resize(actions.len(), 0.0);
        let bounds = low.iter().zip(high).cycle();
        for ((action, walk), (low, high)) in actions.iter_mut().zip(&mut self.walks).zip(bounds) {
            let noise = match self.noise {
                ExplorationNoise::Gaussian(std) => std * rng.normal(),
                ExplorationNoise::OrnsteinUhlenbeck(sigma) => {
                    *walk += sigma * DT.sqrt() * rng.normal() - THETA * DT * *walk;
                    *walk
                }
            };
            let changed = f64::from(*action) + 0.5 * f64::from(high - low) * noise;
            *action = (changed as f32).clamp(*low, *high);
        }
    }

    /// Resets the walk of a row to 0 at the end of its episode; `actions` is the number of walks in a row.
    pub(crate) fn begin(&mut self, row: usize, actions: usize) {
        let own = self.walks.iter_mut().skip(row * actions).take(actions);
        own.for_each(|walk| *walk = 0.0);
    }

    pub(crate) fn save(&self, checkpoint: Checkpoint) -> Result<Checkpoint> {
        let mut state = StateDict::new();
        let walks = HostTensor::new([self.walks.len()].into(), self.walks.clone())?;
        state.insert("walks".to_owned(), walks);
        Ok(checkpoint.with_part(PART, state))
    }

    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let walks = checkpoint.part(PART)?.get("walks");
        let missing = || Error::new(ErrorKind::StateDict, format!("{PART} has no tensor walks"));
        self.walks = walks.ok_or_else(missing)?.to_f64_vec();
        Ok(())
    }
}
