//! Many environments that step together.

use std::ops::Range;

use polygrad_core::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::Space;

/// Environments that step together and write into the caller's memory.
///
/// A row is one agent of one environment: row `env * agents + agent`. Rows lie one after another in every slice.
///
/// An environment whose episode ends is reset in the same step (Gymnasium's `AutoresetMode.SAME_STEP`): its observation
/// is then the first one of the next episode, while reward and flags belong to the step that ended the old one, and the
/// last observation of the old one, from which a truncated episode is bootstrapped, is in
/// [`StepSlices::final_observations`]. So no row of a rollout is without a meaning.
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

    /// Which actions are allowed in the next step, as they are after the last reset or step, `[rows,
    /// action_space().flat_len()]`; `None` where all always are.
    fn action_masks(&self) -> Option<&[bool]> {
        None
    }

    /// Rows in which the last step did nothing but begin an episode, whatever the action was, `[rows]`: of environments
    /// that do not begin one in the step that ends another, as with Gymnasium's `AutoresetMode.NEXT_STEP`. Between the
    /// two steps such a row shows the last observation of the old episode, also as one of
    /// [`StepSlices::final_observations`]; nothing is learnt from the step that begins one. `None` where that never
    /// is, as by default.
    fn begun(&self) -> Option<&[bool]> {
        None
    }

    /// How many groups of environments can step each by itself, while the caller does something else. Each has at least
    /// one row, and all rows are in one. With 1, as by default, there is only [`step`](Self::step), which always works,
    /// too.
    fn groups(&self) -> usize {
        1
    }

    /// The rows of a group; none of a group that there is not.
    fn group_rows(&self, group: usize) -> Range<usize> {
        0..if group == 0 { self.rows() } else { 0 }
    }

    /// Has a group begin a step, and returns at once: Gymnasium's `step_async`. The actions are those of the group's
    /// rows alone.
    ///
    /// # Errors
    /// As of [`step`](Self::step); when the group has not finished its last one, or environments only step all at once.
    fn begin_step(&mut self, group: usize, actions: &[f32]) -> Result<()> {
        let _ = (group, actions);
        Err(all_at_once())
    }

    /// Waits for the step that a group has begun: Gymnasium's `step_wait`. The slices are those of the group's rows
    /// alone. The group's rows of [`action_masks`](Self::action_masks) are then new.
    ///
    /// # Errors
    /// As of [`step`](Self::step); when the group has begun none.
    fn finish_step(&mut self, group: usize, out: &mut StepSlices<'_>) -> Result<()> {
        let _ = (group, out);
        Err(all_at_once())
    }

    /// What [`restore`](Self::restore) goes on from, bit for bit: all that later steps depend on, with what wrappers
    /// keep. It can be written as JSON.
    ///
    /// # Errors
    /// Before a reset or after a step that failed, and where it cannot be had, as by default.
    fn state(&self) -> Result<Value> {
        Err(no_state())
    }

    /// Goes on from a state of environments that were made alike, whether there was a reset or not, and writes what
    /// they show, as
    /// [`reset`](Self::reset) does.
    ///
    /// # Errors
    /// When a length is wrong, the state is damaged or of other environments, or an environment does not come to where
    /// it was. In the last case only a reset or another state helps. Where it cannot be done, as by default.
    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        let _ = (state, observations);
        Err(no_state())
    }

    /// Whether [`restore`](Self::restore) begins the next episodes, since where the running ones stand cannot be had,
    /// as with environments of other programs. Their [`state`](Self::state) is then to be had after a step that failed,
    /// too. Default: no.
    fn begins_anew(&self) -> bool {
        false
    }

    /// What the user should know since this was asked last, such as that a process was started anew. Default: nothing.
    fn take_notices(&mut self) -> Vec<String> {
        Vec::new()
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

    fn begun(&self) -> Option<&[bool]> {
        (**self).begun()
    }

    fn groups(&self) -> usize {
        (**self).groups()
    }

    fn group_rows(&self, group: usize) -> Range<usize> {
        (**self).group_rows(group)
    }

    fn begin_step(&mut self, group: usize, actions: &[f32]) -> Result<()> {
        (**self).begin_step(group, actions)
    }

    fn finish_step(&mut self, group: usize, out: &mut StepSlices<'_>) -> Result<()> {
        (**self).finish_step(group, out)
    }

    fn state(&self) -> Result<Value> {
        (**self).state()
    }

    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        (**self).restore(state, observations)
    }

    fn begins_anew(&self) -> bool {
        (**self).begins_anew()
    }

    fn take_notices(&mut self) -> Vec<String> {
        (**self).take_notices()
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
    /// The last observations of the episodes that ended, `[rows, observation_space().len()]`; other rows stay as they
    /// were.
    pub final_observations: &'a mut [f32],
}

impl StepSlices<'_> {
    /// Whether all slices are as long as an environment needs.
    ///
    /// # Errors
    /// When one is not; the error names it.
    pub fn check<V: VectorEnv + ?Sized>(&self, env: &V) -> Result<()> {
        self.check_rows(env.rows(), env.observation_space().len())
    }

    pub(crate) fn check_rows(&self, rows: usize, width: usize) -> Result<()> {
        let numbers = rows * width;
        check_len("observations", self.observations.len(), numbers)?;
        check_len("rewards", self.rewards.len(), rows)?;
        check_len("terminated", self.terminated.len(), rows)?;
        check_len("truncated", self.truncated.len(), rows)?;
        check_len("final_observations", self.final_observations.len(), numbers)
    }

    /// Some of the rows, such as those of a group. Slices that do not have them are empty, which a step refuses.
    pub fn rows(&mut self, rows: Range<usize>) -> StepSlices<'_> {
        fn part<T>(all: &mut [T], range: Range<usize>) -> &mut [T] {
            all.get_mut(range).unwrap_or_default()
        }
        let width = self.observations.len() / self.rewards.len().max(1);
        let numbers = rows.start * width..rows.end * width;
        StepSlices {
            observations: part(self.observations, numbers.clone()),
            rewards: part(self.rewards, rows.clone()),
            terminated: part(self.terminated, rows.clone()),
            truncated: part(self.truncated, rows),
            final_observations: part(self.final_observations, numbers),
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

pub(crate) fn all_at_once() -> Error {
    let message = "these environments step all at once";
    Error::new(ErrorKind::Unsupported, message).with_hint("`step` does, and `Vectorized::asynchronous` makes groups")
}

fn no_state() -> Error {
    let message = "these environments cannot save their state";
    Error::new(ErrorKind::Unsupported, message)
        .with_hint("implement `VectorEnv::state` and `restore`, or make a `Vectorized` of an `Env`")
}

pub(crate) fn check_len(name: &str, len: usize, expected: usize) -> Result<()> {
    if len == expected {
        return Ok(());
    }
    Err(Error::shape(format!(
        "`{name}` has {len} entries, but the environments need {expected}"
    )))
}
