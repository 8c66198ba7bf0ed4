//! The part of a checkpoint about training on batches.

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_data::LoaderState;
use polygrad_nn::{Checkpoint, Module};
use serde::{Deserialize, Serialize};

use super::fit::Fit;
use super::tally::TallyState;
use crate::driver::{share, unfit};

/// Name of the moving average in a checkpoint.
const EMA: &str = "ema";

/// Name of the gradient scaler in a checkpoint.
const GRAD_SCALER: &str = "grad_scaler";

/// The state besides weights, moments, step and generator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    loader: LoaderState,
    pub(super) epoch: TallyState,
    pub(super) row: TallyState,
    since_best: u64,
}

impl<M: Module + 'static, T: Send + 'static> Fit<'_, M, T> {
    /// Everything needed to continue from here.
    pub(super) fn snapshot(&self, epoch: TallyState, row: TallyState) -> Result<Checkpoint> {
        let learning = &*self.learning;
        let record = Record {
            loader: self.train.state(),
            epoch,
            row,
            since_best: learning.since_best,
        };
        let record = serde_json::to_value(record).map_err(|e| {
            let message = format!("the state of the run cannot be written: {e}");
            Error::new(ErrorKind::Format, message)
        })?;
        let checkpoint = Checkpoint::new(&*learning.model, learning.stepper.optimizer(), learning.steps)?;
        let mut checkpoint = checkpoint.with_config(record);
        if let Some(ema) = &learning.ema {
            checkpoint = checkpoint.with_part(EMA, ema.state_dict()?);
        }
        if let Some(scaler) = &learning.scaler {
            checkpoint = checkpoint.with_part(GRAD_SCALER, scaler.state_dict());
        }
        Ok(checkpoint)
    }

    pub(super) fn record(&self, checkpoint: &Checkpoint) -> Result<Record> {
        let damaged = |e| unfit(&self.place, &format!("its record is damaged ({e})"));
        Record::deserialize(&checkpoint.config).map_err(damaged)
    }

    /// Restores model, optimizer and loader to a state.
    pub(super) fn adopt(&mut self, checkpoint: &Checkpoint, record: &Record) -> Result<()> {
        let learning = &mut *self.learning;
        if let Some(ema) = &mut learning.ema {
            ema.load_state_dict(checkpoint.part(EMA)?)?;
        }
        if let Some(scaler) = &mut learning.scaler {
            scaler.load_state_dict(checkpoint.part(GRAD_SCALER)?)?;
        }
        learning.steps = checkpoint.restore(&*learning.model, learning.stepper.optimizer_mut())?;
        let position = record.loader.position;
        if let Some(length) = self.train.examples().filter(|&length| position > length as u64) {
            let what = format!("it stands at example {position} of an epoch of {length}");
            return Err(unfit(&self.place, &what));
        }
        self.train.set_state(record.loader);
        learning.since_best = record.since_best;
        Ok(())
    }

    /// Takes over the state of rank `root`.
    pub(super) fn follow(&mut self, group: &dyn Communicator, root: usize) -> Result<()> {
        let is_root = group.rank() == root;
        let own = match is_root {
            true => Some(self.snapshot(self.learning.epoch.state(), self.learning.row.state())?),
            false => None,
        };
        let checkpoint = share(group, own, root)?;
        if is_root {
            return Ok(());
        }
        let record = self.record(&checkpoint)?;
        self.learning.epoch.adopt(&record.epoch);
        self.adopt(&checkpoint, &record)?;
        self.learning.committed = self.train.state();
        Ok(())
    }
}
