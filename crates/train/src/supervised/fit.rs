//! A model, an optimizer and data as a learner.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use polygrad_core::Result;
use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut};
use polygrad_data::{Batches, DataLoader};
use polygrad_nn::{Checkpoint, Module};

use super::learning::Learning;
use crate::driver::{Epochs, Evaluation, Figures, LastStep, Learner, Length, Measured, RunOptions, place};

/// Steps between two rows if the length of an epoch is unknown.
const ROW: u64 = 100;

/// Rows in an epoch of known length.
const ROWS_PER_EPOCH: u64 = 10;

/// The progress of a rank: steps, epochs, whether the last epoch has been evaluated, and whether it knows that a rank
/// wants to stop.
type Stand = [i64; 4];

/// A training on given data.
pub(super) struct Fit<'a, M: Module, T> {
    pub(super) learning: &'a mut Learning<M, T>,
    pub(super) train: &'a DataLoader<T>,
    validation: Option<&'a DataLoader<T>>,
    /// The batches of the running epoch.
    batches: Option<Batches<'a, T>>,
    /// Whether the running epoch has no more batches, and whether its evaluation is still to come.
    is_exhausted: bool,
    is_over: bool,
    /// Location of its checkpoint, for messages.
    pub(super) place: String,
    /// Steps between rows and between checkpoints.
    cadence: [Option<u64>; 2],
    /// Whether to keep the best model in memory, since it is wanted but not saved to a file.
    keeps_best: bool,
}

impl<'a, M: Module + 'static, T: Send + 'static> Fit<'a, M, T> {
    pub(super) fn new(
        learning: &'a mut Learning<M, T>,
        train: &'a DataLoader<T>,
        validation: Option<&'a DataLoader<T>>,
        run: &RunOptions,
    ) -> Self {
        Self {
            keeps_best: learning.options.restore_best && run.run.is_none(),
            learning,
            train,
            validation,
            batches: None,
            is_exhausted: false,
            is_over: false,
            place: place(run.run.as_ref()),
            cadence: [run.log_every, run.checkpoint_every],
        }
    }

    fn steps_per_epoch(&self) -> Option<u64> {
        Some((self.train.batches()? as u64).div_ceil(self.learning.options.accumulate))
    }

    /// Texts that must be the same on all ranks.
    fn alike(&self) -> Vec<(&'static str, String)> {
        let (options, train) = (&self.learning.options, self.train);
        let names: Vec<&str> = options.metrics.iter().map(|metric| metric.name()).collect();
        let options = (
            (options.accumulate, options.patience, self.cadence, self.learning.length),
            (options.max_norm, names, &options.monitor),
            (options.autocast, &options.ema, options.restore_best),
        );
        let state = train.state();
        let place = (state.seed, state.epoch, state.position);
        let data = (train.examples(), train.fingerprint());
        vec![
            ("other options of its trainer", format!("{options:?}")),
            ("another batch size", train.batch_size().to_string()),
            ("other data", format!("{data:?}")),
            ("another place or seed in its data", format!("{place:?}")),
        ]
    }

    fn settle(&self) -> Result<()> {
        self.learning.exchange.settle(&*self.learning.model)
    }

    /// The metric that evaluations are judged by (`None`: the loss), and whether higher is better.
    fn monitored(&self) -> (Option<usize>, bool) {
        let options = &self.learning.options;
        let monitor = options.monitor.as_deref().unwrap_or("loss");
        let place = options.metrics.iter().position(|metric| metric.name() == monitor);
        (place, place.is_some_and(|at| options.metrics[at].higher_is_better()))
    }
}

impl<M: Module + 'static, T: Send + 'static> Learner for Fit<'_, M, T> {
    fn unit(&self) -> &'static str {
        "examples"
    }

    fn metrics(&self) -> Vec<&str> {
        self.learning
            .options
            .metrics
            .iter()
            .map(|metric| metric.name())
            .collect()
    }

    fn steps(&self) -> u64 {
        self.learning.steps
    }

    fn is_done(&self) -> bool {
        match self.learning.length {
            Length::Epochs(epochs) => self.train.state().epoch >= epochs,
            Length::Steps(steps) => self.learning.steps >= steps,
        }
    }

    fn advance(&mut self) -> Result<Measured> {
        let batches = match &mut self.batches {
            Some(batches) => batches,
            None => {
                self.learning.begin_epoch(self.train);
                self.is_exhausted = false;
                self.batches.insert(self.train.iter())
            }
        };
        let taken = self.learning.advance(self.train, batches)?;
        self.is_exhausted = taken.is_exhausted;
        self.is_over = self.is_exhausted || self.is_done();
        if self.is_over {
            self.batches = None;
        }
        Ok(Measured {
            loss: f64::NAN,
            metrics: Vec::new(),
            learning_rate: self.learning.stepper.optimizer().lr(),
            loading_seconds: taken.loading_seconds,
        })
    }

    fn score(&self) -> Option<f64> {
        None
    }

    fn checkpoint(&self) -> Result<Checkpoint> {
        self.settle()?;
        let merged = |tally| self.learning.exchange.merged(tally).map(|merged| merged.state());
        self.snapshot(merged(&self.learning.epoch)?, merged(&self.learning.row)?)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let record = self.record(checkpoint)?;
        self.learning.epoch.load_state(&record.epoch)?;
        self.learning.row.load_state(&record.row)?;
        if self.communicator().is_some_and(|group| group.rank() > 0) {
            // Only rank 0 keeps the restored metrics, since they are those of all ranks.
            self.learning.epoch.reset_metrics();
            self.learning.row.reset_metrics();
        }
        self.adopt(checkpoint, &record)?;
        Ok(Vec::new())
    }

    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        let model = &self.learning.model;
        let save = || model.state_dict()?.save_with_metadata(path, metadata);
        self.learning.averaged(save)?
    }

    fn model(&self) -> Option<&dyn Module> {
        Some(&*self.learning.model)
    }

    fn last_step(&self) -> LastStep<'_> {
        LastStep {
            model: Some(&*self.learning.model),
            batch: self.learning.batch.as_ref().map(|batch| batch as &dyn Any),
            gradients: self.learning.gradients.as_ref(),
        }
    }

    fn forget_step(&mut self) {
        (self.learning.batch, self.learning.gradients) = (None, None);
    }

    fn begin(&mut self) -> Result<()> {
        self.learning.take_part(self.train, true)?;
        self.learning.exchange.find_sync(&*self.learning.model);
        Ok(())
    }

    fn ready(&mut self) -> Result<()> {
        self.learning.committed = self.train.state();
        self.learning.running = self.learning.committed.epoch + 1;
        (self.batches, self.is_over) = (None, false);
        self.learning.exchange.check(&*self.learning.model, &|| self.alike())?;
        self.settle()
    }

    fn end(&mut self) -> Result<()> {
        self.settle()?;
        self.learning.model.eval();
        Ok(())
    }

    fn epochs(&self) -> Option<Epochs> {
        let state = self.train.state();
        let part = self
            .train
            .examples()
            .map_or(0.0, |n| state.position as f64 / n.max(1) as f64);
        let steps = self.steps_per_epoch();
        let total = match self.learning.length {
            Length::Epochs(epochs) => Some(epochs),
            Length::Steps(_) => None,
        };
        Some(Epochs {
            running: self.learning.running,
            total,
            done: state.epoch,
            part,
            steps: steps.zip(total).map(|(steps, epochs)| steps * epochs),
            examples: self.learning.examples,
            learning_rate: self.learning.stepper.optimizer().lr(),
        })
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn evaluate(&mut self) -> Result<Option<Evaluation>> {
        let Some(validation) = self.validation else {
            return Ok(None);
        };
        let (loss, metrics) = self.learning.evaluate(validation)?;
        let score = self.monitored().0.map_or(loss, |at| metrics[at]);
        Ok(Some(Evaluation { loss, metrics, score }))
    }

    fn is_better(&self, score: f64, best: f64) -> bool {
        match self.monitored() {
            (_, true) => score > best,
            (_, false) => score < best,
        }
    }

    fn judged(&mut self, is_best: bool) -> Result<()> {
        self.learning.since_best = if is_best { 0 } else { self.learning.since_best + 1 };
        if is_best && self.keeps_best {
            self.learning.best = Some(self.learning.averaged(|| self.learning.model.state_dict())??);
        }
        Ok(())
    }

    fn stops_early(&self) -> bool {
        let patience = self.learning.options.patience;
        patience.is_some_and(|patience| self.learning.since_best >= patience)
    }

    fn finish_epoch(&mut self) {
        self.is_over = false;
        self.learning.epoch.reset();
    }

    fn figures(&self) -> Option<&dyn Figures> {
        Some(&self.learning.epoch)
    }

    fn is_row_due(&self, every: Option<u64>) -> Option<bool> {
        let steps = self
            .steps_per_epoch()
            .map(|steps| steps.div_ceil(ROWS_PER_EPOCH).max(1));
        let (since, every) = (self.learning.row.steps(), every.or(steps).unwrap_or(ROW));
        Some(since == every || self.is_exhausted && since > 0)
    }

    fn take_row(&mut self) -> Result<Option<(f64, Vec<f64>)>> {
        let row = &mut self.learning.row;
        let figures = (row.loss(), self.learning.exchange.merged(row)?.values());
        row.reset();
        Ok(Some(figures))
    }

    fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        self.learning.exchange.communicator()
    }

    fn stops(&mut self, wish: bool) -> Result<bool> {
        Ok(self.learning.exchange.stops(wish))
    }

    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        self.batches = None;
        self.learning.exchange.rejoin(group, &*self.learning.model)?;
        Ok(true)
    }

    /// Only if the optimizer has all of its state. The data are divided anew from the last step that is kept.
    fn catch_up(&mut self) -> Result<Option<usize>> {
        let Some(group) = self.communicator().cloned() else {
            return Ok(None);
        };
        let own: Stand = [
            self.learning.steps.cast_signed(),
            self.learning.committed.epoch.cast_signed(),
            i64::from(!self.is_over),
            i64::from(self.learning.exchange.stops(false)),
        ];
        let mut all = vec![0i64; own.len() * group.size()];
        group.all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        let (stands, _) = all.as_chunks::<4>();
        self.learning.exchange.agree(stands.iter().any(|stand| stand[3] != 0));
        let is_whole = self.learning.stepper.optimizer_mut().rejoin(&group)?;
        self.learning.take_part(self.train, true)?;
        if !is_whole {
            return Ok(None);
        }
        let furthest = |stand: &Stand| (stand[0], stand[1], stand[2]);
        let leader = stands.iter().map(furthest).max().unwrap_or_default();
        let root = stands.iter().position(|stand| furthest(stand) == leader).unwrap_or(0);
        self.train.set_state(self.learning.committed);
        if stands.iter().any(|stand| furthest(stand) != leader) {
            self.follow(&*group, root)?;
        }
        self.is_over = leader.2 == 0;
        // Ranks may differ in whether they had written its row.
        self.learning.row.reset();
        self.settle()?;
        Ok(Some(root))
    }

    fn lost_part(&self) -> &'static str {
        "its part of the optimizer's moments"
    }
}
