use polygrad_core::Result;

use super::as_inside;
use crate::{Episode, EpisodeStatistics, Space, StepSlices, VectorEnv};

/// Keeps the return and the length of episodes, as Gymnasium's wrapper of the same name.
///
/// It belongs inside of wrappers that change rewards.
#[derive(Clone, Debug)]
pub struct RecordEpisodeStatistics<V> {
    env: V,
    statistics: EpisodeStatistics,
    finished: Vec<Episode>,
}

impl<V: VectorEnv> RecordEpisodeStatistics<V> {
    /// Nothing is kept yet.
    pub fn new(env: V) -> Self {
        let rows = env.rows();
        Self {
            env,
            statistics: EpisodeStatistics::new(rows),
            finished: Vec::with_capacity(rows),
        }
    }

    /// The episodes that ended in the last step, by row.
    pub fn finished(&self) -> &[Episode] {
        &self.finished
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

impl<V: VectorEnv> VectorEnv for RecordEpisodeStatistics<V> {
    as_inside!(num_envs -> usize, agents -> usize, observation_space -> &Space, action_space -> &Space, action_masks -> Option<&[bool]>);

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
            .add(rows, out.rewards, out.terminated, out.truncated, &mut self.finished)
    }
}
