//! Many environments that step together.

use std::ops::Range;

use polygrad_core::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::Space;

/// Environments that step together and write into the caller's memory.
///
/// A row is one agent of one environment: row `env * agents + agent`. Rows lie one after another in every slice.
///
/// An environment whose episode ends is reset in the same step (Gymnasium's `AutoresetMode.SAME_STEP`). The observation
/// is then the first one of the next episode, while reward and flags belong to the step that ended the old episode. The
/// last observation of the old episode, from which a truncated episode is bootstrapped, is in
/// [`StepSlices::final_observations`]. So every row of a rollout is a meaningful step.
pub trait VectorEnv {
    /// The number of environments.
    fn num_envs(&self) -> usize;

    /// The number of agents of each environment. Default: 1.
    fn agents(&self) -> usize {
        1
    }

    /// The number of rows: environments times agents.
    fn rows(&self) -> usize {
        self.num_envs() * self.agents()
    }

    /// The observation space of one agent.
    fn observation_space(&self) -> &Space;

    /// The action space of one agent.
    fn action_space(&self) -> &Space;

    /// Begins an episode in every environment, and writes `rows` times `observation_space().len()` numbers.
    ///
    /// # Errors
    /// If a length is wrong, or an environment fails.
    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()>;

    /// Takes a step with `rows` times `action_space().len()` numbers of actions.
    ///
    /// # Errors
    /// If a length is wrong, an action is not in its space or not allowed, or an environment fails. The output is then
    /// meaningless, and only [`reset`](Self::reset) makes the environments usable again.
    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()>;

    /// The actions allowed in the next step, as of the last reset or step, `[rows, action_space().flat_len()]`; `None`
    /// if all are always allowed.
    fn action_masks(&self) -> Option<&[bool]> {
        None
    }

    /// Rows in which the last step only began an episode, regardless of the action, `[rows]`. This is for environments
    /// that do not begin an episode in the step that ends another, as in Gymnasium's `AutoresetMode.NEXT_STEP`. Between
    /// the two steps such a row shows the last observation of the old episode, also in
    /// [`StepSlices::final_observations`]. The step that begins an episode is not learned from. Default: `None`, for
    /// environments without such steps.
    fn begun(&self) -> Option<&[bool]> {
        None
    }

    /// The number of groups of environments that can step independently, while the caller does something else. Each
    /// group has at least one row, and each row is in one group. With 1, the default, there is only
    /// [`step`](Self::step), which works with any number of groups.
    fn groups(&self) -> usize {
        1
    }

    /// The rows of a group; empty if there is no such group.
    fn group_rows(&self, group: usize) -> Range<usize> {
        0..if group == 0 { self.rows() } else { 0 }
    }

    /// Starts a step of a group, and returns at once: Gymnasium's `step_async`. `actions` has only the group's rows.
    ///
    /// # Errors
    /// Those of [`step`](Self::step); if the group has not finished its last step, or the environments only step all at
    /// once.
    fn begin_step(&mut self, group: usize, actions: &[f32]) -> Result<()> {
        let _ = (group, actions);
        Err(all_at_once())
    }

    /// Waits for the step that a group has started: Gymnasium's `step_wait`. The slices have only the group's rows.
    /// Afterwards the group's rows of [`action_masks`](Self::action_masks) are updated.
    ///
    /// # Errors
    /// Those of [`step`](Self::step); if the group has started no step.
    fn finish_step(&mut self, group: usize, out: &mut StepSlices<'_>) -> Result<()> {
        let _ = (group, out);
        Err(all_at_once())
    }

    /// The state from which [`restore`](Self::restore) continues, bit for bit: everything that later steps depend on,
    /// including the state of wrappers. It can be written as JSON.
    ///
    /// # Errors
    /// Before a reset, after a failed step, and if the state cannot be saved, which is the default.
    fn state(&self) -> Result<Value> {
        Err(no_state())
    }

    /// Continues from a state of environments that were made in the same way, whether or not there was a reset, and
    /// writes their observations, like [`reset`](Self::reset).
    ///
    /// # Errors
    /// If a length is wrong, the state is damaged or of other environments, or an environment does not reach its saved
    /// state. In the last case only a reset or another state makes the environments usable again. Also if states are
    /// not supported, which is the default.
    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        let _ = (state, observations);
        Err(no_state())
    }

    /// Whether [`restore`](Self::restore) begins the next episodes, since the state of the running ones is not
    /// available, for example in other programs. [`state`](Self::state) then also works after a failed step. Default:
    /// false.
    fn begins_anew(&self) -> bool {
        false
    }

    /// Notices for the user since the last call, for example that a process was restarted. Default: none.
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

/// The output of a step: slices of a rollout's memory, or of [`StepBuffers`].
#[derive(Debug)]
pub struct StepSlices<'a> {
    /// The next observations, `[rows, observation_space().len()]`.
    pub observations: &'a mut [f32],
    /// `[rows]`.
    pub rewards: &'a mut [f32],
    /// Whether the row's episode ended in a terminal state, `[rows]`.
    pub terminated: &'a mut [bool],
    /// Whether the row's episode was cut short, `[rows]`.
    pub truncated: &'a mut [bool],
    /// The last observations of the episodes that ended, `[rows, observation_space().len()]`; other rows stay as they
    /// were.
    pub final_observations: &'a mut [f32],
}

impl StepSlices<'_> {
    /// Checks whether all slices have the lengths that an environment needs.
    ///
    /// # Errors
    /// If one does not; the error names it.
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

    /// Some of the rows, such as those of a group. Slices without these rows are empty, which makes the step fail.
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
    /// Whether the row's episode was cut short, `[rows]`.
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

    /// All buffers, as the output of a step.
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
