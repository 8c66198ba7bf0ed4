use std::ops::Range;

use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::vector::check_len;

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

/// Returns and lengths of the episodes that are running, a pair for each row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct EpisodeStatistics {
    totals: Vec<f64>,
    lengths: Vec<usize>,
}

/// What was read, which may be anything.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    totals: Vec<f64>,
    lengths: Vec<usize>,
}

impl TryFrom<Saved> for EpisodeStatistics {
    type Error = Error;

    fn try_from(Saved { totals, lengths }: Saved) -> Result<Self> {
        if totals.len() != lengths.len() {
            let (totals, lengths) = (totals.len(), lengths.len());
            return Err(Error::shape(format!(
                "{totals} returns of episodes, but {lengths} lengths"
            )));
        }
        Ok(Self { totals, lengths })
    }
}

impl EpisodeStatistics {
    /// Of so many rows, whose episodes begin.
    pub fn new(rows: usize) -> Self {
        Self {
            totals: vec![0.0; rows],
            lengths: vec![0; rows],
        }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.totals.len()
    }

    /// The rewards of each row's episode so far, added up.
    pub fn totals(&self) -> &[f64] {
        &self.totals
    }

    /// How many steps each row's episode has so far.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// All episodes begin.
    pub fn reset(&mut self) {
        self.totals.fill(0.0);
        self.lengths.fill(0);
    }

    /// Forgets the step of rows in which it has only [begun](crate::VectorEnv::begun) an episode.
    pub(crate) fn begin(&mut self, begun: Option<&[bool]>) {
        let rows = self.totals.iter_mut().zip(&mut self.lengths);
        for ((total, length), _) in rows.zip(begun.into_iter().flatten()).filter(|(_, begun)| **begun) {
            (*total, *length) = (0.0, 0);
        }
    }

    /// Adds a step of some rows, and appends the episodes that it ended to `finished`, by row. The slices have an entry
    /// for each of these rows, `[rows.len()]`.
    ///
    /// # Errors
    /// When there are no such rows, or a slice is of another length; nothing is added then.
    pub fn add(
        &mut self,
        rows: Range<usize>,
        rewards: &[f32],
        terminated: &[bool],
        truncated: &[bool],
        finished: &mut Vec<Episode>,
    ) -> Result<()> {
        check_len("rewards", rewards.len(), rows.len())?;
        check_len("terminated", terminated.len(), rows.len())?;
        check_len("truncated", truncated.len(), rows.len())?;
        let (first, all) = (rows.start, self.rows());
        let (Some(totals), Some(lengths)) = (self.totals.get_mut(rows.clone()), self.lengths.get_mut(rows.clone()))
        else {
            return Err(Error::out_of_range(format!("rows {rows:?} of {all}")));
        };
        for (i, (total_reward, length)) in totals.iter_mut().zip(lengths).enumerate() {
            *total_reward += f64::from(rewards[i]);
            *length += 1;
            if terminated[i] || truncated[i] {
                finished.push(Episode {
                    row: first + i,
                    total_reward: std::mem::take(total_reward),
                    length: std::mem::take(length),
                });
            }
        }
        Ok(())
    }
}
