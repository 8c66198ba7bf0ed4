//! Where a run stands, beside its weights: what a checkpoint keeps so that going on is the same as never having stopped.

use serde::{Deserialize, Serialize};

use crate::run::config::Config;
use crate::run::metrics::Mark;

/// Losses and answers, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    loss: f64,
    right: u64,
    seen: u64,
}

impl Tally {
    /// Adds a batch of `seen` images with the mean loss `loss` and `right` right answers.
    pub(super) fn add(&mut self, loss: f64, right: u64, seen: u64) {
        self.loss += loss * seen as f64;
        self.right += right;
        self.seen += seen;
    }

    /// The mean loss; 0 of nothing.
    pub(super) fn loss(&self) -> f64 {
        self.loss / self.seen.max(1) as f64
    }

    /// The share of right answers, 0 to 1; 0 of nothing.
    pub(super) fn accuracy(&self) -> f64 {
        self.right as f64 / self.seen.max(1) as f64
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Epochs done.
    pub(super) epoch: usize,
    /// Batches done in the running epoch.
    pub(super) batch: usize,
    /// Wall-clock seconds so far.
    pub(super) seconds: f64,
    /// The running epoch so far.
    pub(super) of_epoch: Tally,
    /// What the next row of the metrics covers so far.
    pub(super) of_row: Tally,
}

/// What a checkpoint holds beside weights, moments, step and generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The run's settings.
    pub(super) config: Config,
    /// Where it stands.
    pub(super) position: Position,
    /// Its measurements so far; checkpoints of before did not know them.
    #[serde(default)]
    pub(super) metrics: Option<Mark>,
}
