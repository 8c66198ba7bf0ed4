use polygrad_core::Result;

use super::as_inside;
use crate::{Space, StepSlices, VectorEnv};

/// One row of an episode that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// The row: environment times agents, and the agent.
    pub row: usize,
    /// The sum of the rewards.
    pub total_reward: f64,
    /// How many steps.
    pub length: usize,
}

/// Keeps the return and the length of episodes, as Gymnasium's wrapper of the same name.
///
/// It belongs inside of wrappers that change rewards.
#[derive(Clone, Debug)]
pub struct RecordEpisodeStatistics<V> {
    env: V,
    totals: Vec<f64>,
    lengths: Vec<usize>,
    finished: Vec<Episode>,
}

impl<V: VectorEnv> RecordEpisodeStatistics<V> {
    /// Nothing is kept yet.
    pub fn new(env: V) -> Self {
        let rows = env.rows();
        Self {
            env,
            totals: vec![0.0; rows],
            lengths: vec![0; rows],
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
    as_inside!(num_envs -> usize, agents -> usize, observation_space -> &Space, action_space -> &Space);

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.totals.fill(0.0);
        self.lengths.fill(0);
        self.finished.clear();
        self.env.reset(seed, observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.finished.clear();
        self.env.step(actions, out)?;
        for (row, (total_reward, length)) in self.totals.iter_mut().zip(&mut self.lengths).enumerate() {
            *total_reward += f64::from(out.rewards[row]);
            *length += 1;
            if out.terminated[row] || out.truncated[row] {
                self.finished.push(Episode {
                    row,
                    total_reward: std::mem::take(total_reward),
                    length: std::mem::take(length),
                });
            }
        }
        Ok(())
    }
}
