//! Environments whose steps go to a replay buffer.

use std::collections::VecDeque;
use std::time::Instant;

use polygrad_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::act::spaces::{flatten, for_environment, observation_shape};
use crate::replay::n_step::{Begun, Happened, NStep};
use crate::statistics::recent::Recent;
use crate::{ActionSpace, Episode, EpisodeStatistics, ReplayBuffer, Space, StepBuffers, VectorEnv};

/// The notice for a resumed training whose environments could not be restored; `None` if they were.
pub(crate) fn begun_anew(begun: bool, envs: &dyn VectorEnv) -> Option<String> {
    let text = "where the environments stood cannot be saved: they begin their next episodes, and so the run does not \
                go on bit for bit as it would have";
    (begun && envs.begins_anew()).then(|| text.to_owned())
}

/// Whether a training is still intact after an error in `advance`: true if environments of another program failed.
pub(crate) fn survives(error: &Error, envs: &dyn VectorEnv) -> bool {
    envs.begins_anew() && error.kind() == ErrorKind::Io
}

/// Environments and everything seen in them: the common part of all algorithms that learn from a replay buffer.
pub struct Experience {
    pub(crate) envs: Box<dyn VectorEnv>,
    buffers: StepBuffers,
    /// Shape of an observation as a network sees it.
    pub(crate) shape: Vec<usize>,
    /// The next observations.
    pub(crate) observations: Vec<f32>,
    /// The last observations of episodes that have ended.
    finals: Vec<f32>,
    /// Actions as environments take them.
    chosen: Vec<f32>,
    action_len: usize,
    n_step: NStep,
    pub(crate) replay: ReplayBuffer,
    statistics: EpisodeStatistics,
    pub(crate) recent: Recent,
    /// The episodes that have ended since the last call that took them.
    pub(crate) ended: Vec<Episode>,
    /// Seconds spent in the environments since the last call that took them.
    pub(crate) seconds: f64,
    begun: bool,
}

/// The state of the environments in a checkpoint.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stand {
    /// `None` before the first reset.
    environments: Option<Value>,
    statistics: EpisodeStatistics,
    recent: Recent,
    begun: Vec<VecDeque<Begun>>,
}

impl Experience {
    /// From environments, a replay buffer for their transitions, and the number of steps of a transition with their
    /// discount.
    pub(crate) fn new(envs: Box<dyn VectorEnv>, replay: ReplayBuffer, (steps, gamma): (usize, f64)) -> Self {
        let rows = envs.rows();
        let (width, raw) = (envs.observation_space().flat_len(), envs.observation_space().len());
        Self {
            buffers: StepBuffers::with_rows(rows, raw),
            shape: observation_shape(envs.observation_space()),
            observations: vec![0.0; rows * width],
            finals: vec![0.0; rows * width],
            chosen: vec![0.0; rows * envs.action_space().len()],
            action_len: ActionSpace::from(envs.action_space()).len(),
            n_step: NStep::new(steps, gamma, rows),
            replay,
            statistics: EpisodeStatistics::new(rows),
            recent: Recent::default(),
            ended: Vec::new(),
            seconds: 0.0,
            begun: false,
            envs,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.envs.rows()
    }

    pub(crate) fn action_space(&self) -> &Space {
        self.envs.action_space()
    }

    /// The notice that the environments could not be restored; `None` if they were.
    pub(crate) fn begun_anew(&self) -> Option<String> {
        begun_anew(self.begun, &*self.envs)
    }

    fn width(&self) -> usize {
        self.envs.observation_space().flat_len()
    }

    /// Begins an episode in every environment, if none was begun yet.
    pub(crate) fn begin(&mut self, seed: u64) -> Result<()> {
        if !self.begun {
            self.envs.reset(seed, &mut self.buffers.observations)?;
            flatten(
                self.envs.observation_space(),
                &self.buffers.observations,
                &mut self.observations,
            )?;
            self.begun = true;
        }
        Ok(())
    }

    /// Takes the actions of all rows, as a policy chooses them, and stores the result.
    pub(crate) fn step(&mut self, actions: &[f32]) -> Result<()> {
        let space = self.envs.action_space();
        let own = actions.chunks(self.action_len).zip(self.chosen.chunks_mut(space.len()));
        own.for_each(|(action, chosen)| for_environment(space, action, chosen));
        let started = Instant::now();
        self.envs.step(&self.chosen, &mut self.buffers.as_mut())?;
        self.seconds += started.elapsed().as_secs_f64();
        let before = self.ended.len();
        let (terminated, truncated) = (&self.buffers.terminated, &self.buffers.truncated);
        let rewards = &self.buffers.rewards;
        let rows = 0..terminated.len();
        self.statistics
            .add(rows, rewards, terminated, truncated, &mut self.ended)?;
        self.statistics.begin(self.envs.begun());
        self.recent.add(&self.ended[before..]);
        self.keep(actions)
    }

    /// Adds the finished transitions to the replay buffer and takes over the next observations.
    fn keep(&mut self, actions: &[f32]) -> Result<()> {
        let (width, buffers) = (self.width(), &self.buffers);
        let mut seen = vec![0.0; self.observations.len()];
        let space = self.envs.observation_space();
        flatten(space, &buffers.observations, &mut seen)?;
        let ends = |row: usize| buffers.terminated[row] || buffers.truncated[row];
        if (0..self.envs.rows()).any(ends) {
            flatten(space, &buffers.final_observations, &mut self.finals)?;
        }
        let begun = self.envs.begun();
        for row in (0..self.envs.rows()).filter(|row| begun.is_none_or(|begun| !begun[*row])) {
            let own = row * width..(row + 1) * width;
            let next = if ends(row) { &self.finals } else { &seen };
            let happened = Happened {
                observation: &self.observations[own.clone()],
                action: &actions[row * self.action_len..(row + 1) * self.action_len],
                reward: buffers.rewards[row],
                next_observation: &next[own],
                terminated: buffers.terminated[row],
                truncated: buffers.truncated[row],
            };
            self.n_step.add(row, &happened, &mut self.replay)?;
        }
        self.observations = seen;
        Ok(())
    }

    /// The state, without the replay buffer.
    pub(crate) fn state(&self) -> Result<Stand> {
        Ok(Stand {
            environments: self.begun.then(|| self.envs.state()).transpose()?,
            statistics: self.statistics.clone(),
            recent: self.recent.clone(),
            begun: self.n_step.state(),
        })
    }

    /// Whether the saved state is of such environments and steps.
    pub(crate) fn fits(&self, stand: &Stand) -> bool {
        let rows = stand.statistics.rows() == self.envs.rows();
        rows && self.n_step.fits(&stand.begun, (self.width(), self.action_len))
    }

    /// Continues from the saved state, if it [fits](Self::fits).
    pub(crate) fn restore(&mut self, stand: Stand) -> Result<()> {
        self.n_step.rows = stand.begun;
        if let Some(saved) = &stand.environments {
            self.envs.restore(saved, &mut self.buffers.observations)?;
            flatten(
                self.envs.observation_space(),
                &self.buffers.observations,
                &mut self.observations,
            )?;
        }
        self.begun = stand.environments.is_some();
        (self.statistics, self.recent) = (stand.statistics, stand.recent);
        if self.envs.begins_anew() {
            self.statistics.reset();
            self.n_step.rows.iter_mut().for_each(VecDeque::clear);
        }
        self.ended.clear();
        Ok(())
    }
}
