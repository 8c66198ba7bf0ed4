use std::ops::Range;

use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::vector::check_len;

/// An ended episode of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// The row: environment index times agents, plus the agent.
    pub row: usize,
    /// The sum of the rewards.
    pub total_reward: f64,
    /// The number of steps.
    pub length: usize,
}

/// Returns and lengths of the running episodes, one pair for each row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct EpisodeStatistics {
    totals: Vec<f64>,
    lengths: Vec<usize>,
}

/// Deserialized data, not yet checked.
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
    /// For `rows` rows, whose episodes begin.
    pub fn new(rows: usize) -> Self {
        Self {
            totals: vec![0.0; rows],
            lengths: vec![0; rows],
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.totals.len()
    }

    /// The sum of rewards of each row's episode so far.
    pub fn totals(&self) -> &[f64] {
        &self.totals
    }

    /// The number of steps of each row's episode so far.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Begins all episodes.
    pub fn reset(&mut self) {
        self.totals.fill(0.0);
        self.lengths.fill(0);
    }

    /// Discards the step of rows in which it only [began](crate::VectorEnv::begun) an episode.
    pub(crate) fn begin(&mut self, begun: Option<&[bool]>) {
        let rows = self.totals.iter_mut().zip(&mut self.lengths);
        for ((total, length), _) in rows.zip(begun.into_iter().flatten()).filter(|(_, begun)| **begun) {
            (*total, *length) = (0.0, 0);
        }
    }

    /// Adds a step of some rows, and appends the episodes that it ended to `finished`, by row. Each slice has one entry
    /// per row, `[rows.len()]`.
    ///
    /// # Errors
    /// If there are no such rows, or a slice has another length; nothing is added then.
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
