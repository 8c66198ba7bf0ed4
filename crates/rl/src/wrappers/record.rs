use std::ops::Range;

use polygrad_core::{Error, Result};
use serde_json::Value;

use super::{as_inside, nested, opened};
use crate::{Episode, EpisodeStatistics, Space, StepSlices, VectorEnv};

/// Records the return and the length of episodes, like Gymnasium's wrapper of the same name.
///
/// Place it inside of wrappers that change rewards.
#[derive(Clone, Debug)]
pub struct RecordEpisodeStatistics<V> {
    env: V,
    statistics: EpisodeStatistics,
    finished: Vec<Episode>,
}

impl<V: VectorEnv> RecordEpisodeStatistics<V> {
    /// With nothing recorded yet.
    pub fn new(env: V) -> Self {
        let rows = env.rows();
        Self {
            env,
            statistics: EpisodeStatistics::new(rows),
            finished: Vec::with_capacity(rows),
        }
    }

    /// The episodes that ended in the last step, or in the last one that a group has finished, by row.
    pub fn finished(&self) -> &[Episode] {
        &self.finished
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

impl<V: VectorEnv> VectorEnv for RecordEpisodeStatistics<V> {
    as_inside!(num_envs -> usize, agents -> usize, observation_space -> &Space, action_space -> &Space, action_masks -> Option<&[bool]>,
        begun -> Option<&[bool]>, begins_anew -> bool, groups -> usize);

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.statistics.reset();
        self.finished.clear();
        self.env.reset(seed, observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.finished.clear();
        self.env.step(actions, out)?;
        let rows = 0..self.statistics.rows();
        self.statistics
            .add(rows, out.rewards, out.terminated, out.truncated, &mut self.finished)?;
        self.statistics.begin(self.env.begun());
        Ok(())
    }
    fn group_rows(&self, group: usize) -> Range<usize> {
        self.env.group_rows(group)
    }

    fn begin_step(&mut self, group: usize, actions: &[f32]) -> Result<()> {
        self.env.begin_step(group, actions)
    }

    fn finish_step(&mut self, group: usize, out: &mut StepSlices<'_>) -> Result<()> {
        self.finished.clear();
        self.env.finish_step(group, out)?;
        let rows = self.env.group_rows(group);
        self.statistics
            .add(rows, out.rewards, out.terminated, out.truncated, &mut self.finished)
    }

    fn take_notices(&mut self) -> Vec<String> {
        self.env.take_notices()
    }

    fn state(&self) -> Result<Value> {
        nested(NAME, &self.statistics, &self.env)
    }

    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        let (statistics, inside): (EpisodeStatistics, _) = opened(NAME, state)?;
        let (rows, expected) = (statistics.rows(), self.env.rows());
        if rows != expected {
            return Err(Error::shape(format!(
                "the episodes are of {rows} rows, the environments have {expected}"
            )));
        }
        self.env.restore(inside, observations)?;
        self.statistics = statistics;
        if self.env.begins_anew() {
            self.statistics.reset();
        }
        self.finished.clear();
        Ok(())
    }
}

const NAME: &str = "RecordEpisodeStatistics";
