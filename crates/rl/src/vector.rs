//! Many environments that step together.

use std::ops::Range;

use polygrad_core::{Error, Result};

use crate::Space;

/// Environments that step together and write into the caller's memory.
///
/// A row is one agent of one environment: row `env * agents + agent`. Rows lie one after another in every slice.
///
/// An environment whose episode ends is reset in the same step (Gymnasium's `AutoresetMode.SAME_STEP`): its observation is then the first
/// one of the next episode, while reward and flags belong to the step that ended the old one, and the last observation of the old one,
/// from which a truncated episode is bootstrapped, is in [`StepSlices::final_observations`]. So no row of a rollout is without a meaning.
pub trait VectorEnv {
    /// How many environments.
    fn num_envs(&self) -> usize;

    /// How many agents each has; 1 unless said otherwise.
    fn agents(&self) -> usize {
        1
    }

    /// How many rows: environments times agents.
    fn rows(&self) -> usize {
        self.num_envs() * self.agents()
    }

    /// What one agent observes.
    fn observation_space(&self) -> &Space;

    /// What one agent does.
    fn action_space(&self) -> &Space;

    /// Begins an episode in every environment, and writes `rows` times `observation_space().len()` numbers.
    ///
    /// # Errors
    /// When a length is wrong, or an environment fails.
    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()>;

    /// Does `rows` times `action_space().len()` numbers of actions.
    ///
    /// # Errors
    /// When a length is wrong, an action is not in its space or not allowed, or an environment fails. After that only
    /// [`reset`](Self::reset) helps, and what was written means nothing.
    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()>;

    /// Which actions are allowed in the next step, as they are after the last reset or step, `[rows, action_space().flat_len()]`; `None`
    /// where all always are.
    fn action_masks(&self) -> Option<&[bool]> {
        None
    }
}

impl<V: VectorEnv + ?Sized> VectorEnv for Box<V> {
    fn num_envs(&self) -> usize {
        (**self).num_envs()
    }

    fn agents(&self) -> usize {
        (**self).agents()
    }

    fn observation_space(&self) -> &Space {
        (**self).observation_space()
    }

    fn action_space(&self) -> &Space {
        (**self).action_space()
    }

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        (**self).reset(seed, observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        (**self).step(actions, out)
    }

    fn action_masks(&self) -> Option<&[bool]> {
        (**self).action_masks()
    }
}

/// Where a step writes. Slices into a rollout's memory do, or those of [`StepBuffers`].
#[derive(Debug)]
pub struct StepSlices<'a> {
    /// The next observations, `[rows, observation_space().len()]`.
    pub observations: &'a mut [f32],
    /// `[rows]`.
    pub rewards: &'a mut [f32],
    /// Whether the row's episode ended in a terminal state, `[rows]`.
    pub terminated: &'a mut [bool],
    /// Whether it was cut short, `[rows]`.
    pub truncated: &'a mut [bool],
    /// The last observations of the episodes that ended, `[rows, observation_space().len()]`; other rows stay as they were.
    pub final_observations: &'a mut [f32],
}

impl StepSlices<'_> {
    /// Whether all slices are as long as an environment needs.
    ///
    /// # Errors
    /// When one is not; the error names it.
    pub fn check<V: VectorEnv + ?Sized>(&self, env: &V) -> Result<()> {
        let rows = env.rows();
        let numbers = rows * env.observation_space().len();
        check_len("observations", self.observations.len(), numbers)?;
        check_len("rewards", self.rewards.len(), rows)?;
        check_len("terminated", self.terminated.len(), rows)?;
        check_len("truncated", self.truncated.len(), rows)?;
        check_len("final_observations", self.final_observations.len(), numbers)
    }

    /// Some of the rows.
    pub(crate) fn part(&mut self, rows: Range<usize>) -> StepSlices<'_> {
        let width = self.observations.len() / self.rewards.len().max(1);
        let numbers = rows.start * width..rows.end * width;
        StepSlices {
            observations: &mut self.observations[numbers.clone()],
            rewards: &mut self.rewards[rows.clone()],
            terminated: &mut self.terminated[rows.clone()],
            truncated: &mut self.truncated[rows],
            final_observations: &mut self.final_observations[numbers],
        }
    }
}

/// Memory for the steps of one [`VectorEnv`].
#[derive(Clone, Debug, PartialEq)]
pub struct StepBuffers {
    /// The next observations, `[rows, observation_space().len()]`.
    pub observations: Vec<f32>,
    /// `[rows]`.
    pub rewards: Vec<f32>,
    /// Whether the row's episode ended in a terminal state, `[rows]`.
    pub terminated: Vec<bool>,
    /// Whether it was cut short, `[rows]`.
    pub truncated: Vec<bool>,
    /// The last observations of the episodes that ended; other rows are old.
    pub final_observations: Vec<f32>,
}

impl StepBuffers {
    /// Memory for the steps of `env`.
    pub fn new<V: VectorEnv + ?Sized>(env: &V) -> Self {
        Self::with_rows(env.rows(), env.observation_space().len())
    }

    pub(crate) fn with_rows(rows: usize, width: usize) -> Self {
        Self {
            observations: vec![0.0; rows * width],
            rewards: vec![0.0; rows],
            terminated: vec![false; rows],
            truncated: vec![false; rows],
            final_observations: vec![0.0; rows * width],
        }
    }

    /// All of it, to be written by a step.
    pub fn as_mut(&mut self) -> StepSlices<'_> {
        StepSlices {
            observations: &mut self.observations,
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            final_observations: &mut self.final_observations,
        }
    }
}

pub(crate) fn check_len(name: &str, len: usize, expected: usize) -> Result<()> {
    if len == expected {
        return Ok(());
    }
    Err(Error::shape(format!(
        "`{name}` has {len} entries, but the environments need {expected}"
    )))
}
