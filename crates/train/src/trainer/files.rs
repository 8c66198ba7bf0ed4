//! What a trainer leaves in the folder of its run.

use std::path::Path;

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_data::{DataLoader, LoaderState};
use polygrad_nn::{Checkpoint, Module};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Trainer;
use super::ranks::{Found, SharedRun, share};
use super::tally::{Tally, TallyState};
use crate::Run;
use crate::run::{Columns, Mark, Row, Rows, RunFolder, Split, SummaryWriter, shown, write};

/// Under this name a checkpoint has the moving average.
const EMA: &str = "ema";

/// Under this name it has what f16 is scaled by.
const GRAD_SCALER: &str = "grad_scaler";

/// The files that grow.
pub(super) struct Files {
    rows: Rows,
    events: SummaryWriter,
    columns: Columns,
}

/// What a checkpoint holds beside weights, moments, step and generator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    settings: Value,
    loader: LoaderState,
    seconds: f64,
    pub(super) epoch: TallyState,
    pub(super) row: TallyState,
    best: Option<f64>,
    since_best: u64,
    rows: Mark,
}

impl Files {
    /// Of a run that begins.
    pub(super) fn create(run: &RunFolder, columns: Columns) -> Result<Self> {
        Ok(Self {
            rows: Rows::create(&run.metrics(), columns.clone(), Vec::new())?,
            events: SummaryWriter::create(run.events())?,
            columns,
        })
    }

    /// Of a run that goes on after so many steps; and what the user should know.
    pub(super) fn resume(run: &RunFolder, columns: Columns, step: u64, mark: &Mark) -> Result<(Self, Vec<String>)> {
        let (rows, notice) = Rows::resume(&run.metrics(), columns.clone(), step, mark)?;
        let mut notices = Vec::from_iter(notice);
        if step > 0 && !run.events().exists() {
            let path = shown(&run.events());
            notices.push(format!("{path} is gone: a new one begins after step {step}"));
        }
        let events = SummaryWriter::resume(run.events(), step)?;
        Ok((Self { rows, events, columns }, notices))
    }

    pub(super) fn mark(&self) -> Result<Mark> {
        self.rows.mark()
    }

    pub(super) fn rows(&self) -> &[Row] {
        self.rows.rows()
    }

    pub(super) fn append(&mut self, row: &Row) -> Result<()> {
        self.rows.append(row.clone())?;
        let split = self.columns.split(row.split);
        let tag = |name: &str| format!("{name}/{split}");
        let mut values = vec![(tag("loss"), row.loss)];
        values.extend(
            self.columns
                .metrics
                .iter()
                .map(|name| tag(name))
                .zip(row.metrics.iter().copied()),
        );
        if row.split == Split::Train {
            values.push(("learning_rate".to_owned(), row.learning_rate));
        }
        let values: Vec<(&str, f64)> = values.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
        self.events.add_scalars(&values, row.step)
    }
}

/// The checkpoint of a run, which rank 0 alone keeps.
pub(super) fn load(run: Option<&Run>, group: Option<&dyn Communicator>) -> Result<Option<Checkpoint>> {
    let own = run.map(|run| Checkpoint::load(run.checkpoint())).transpose()?;
    match group {
        Some(group) => share(group, own, 0).map(Some),
        None => Ok(own),
    }
}

/// A checkpoint that cannot be gone on from.
pub(super) fn unfit(run: Option<&Run>, what: &str) -> Error {
    let place = match run {
        Some(run) => shown(&run.checkpoint()),
        None => "the checkpoint of another rank".to_owned(),
    };
    Error::new(ErrorKind::StateDict, format!("cannot go on from {place}: {what}"))
        .with_hint("go on with the program that left it, or start a new run")
}

impl<M: Module + 'static, T: Send + 'static> Trainer<M, T> {
    fn columns(&self) -> Columns {
        Columns {
            metrics: self.names.clone(),
            validation: self.config.validation.clone(),
        }
    }

    /// Begins the run in its folder, or goes on with it, together with all ranks; gives what the user should know.
    pub(super) fn begin(&mut self, train: &DataLoader<T>) -> Result<Vec<String>> {
        self.take_part(train, true)?;
        let run = self.config.run.as_ref().filter(|_| self.files.is_none());
        let mut found = Found::of(run);
        if let Some(ranks) = &mut self.ranks {
            ranks.find_sync(&*self.model);
            found = found.agreed(&*ranks.communicator())?;
        }
        if let Some(ranks) = self.ranks.as_mut().filter(|_| found != Found::Nothing) {
            ranks.run = Some(SharedRun::agreed(&self.config, &*ranks.communicator())?);
        }
        let notices = match found {
            Found::Nothing => Vec::new(),
            Found::New => self.create(train)?,
            Found::Run => {
                let (seconds, notices) = self.resume(train)?;
                self.before = (self.step, seconds);
                notices
            }
        };
        self.committed = train.state();
        self.check_ranks(train)?;
        self.settle()?;
        Ok(notices)
    }

    fn create(&mut self, train: &DataLoader<T>) -> Result<Vec<String>> {
        let begun = (|| {
            // The checkpoint makes it a run, since all else can be made from it: a kill before it leaves nothing, one after it a run to go on with.
            self.write_checkpoint(train, Mark::default())?;
            let Some(run) = &self.config.run else { return Ok(None) };
            write(&run.config(), self.config.config.as_bytes())?;
            Files::create(run, self.columns()).map(Some)
        })();
        // A run that cannot begin must not keep the folder from the next attempt.
        self.files = begun.inspect_err(|_: &Error| {
            if let Some(run) = &self.config.run {
                run.clear();
            }
        })?;
        Ok(Vec::new())
    }

    /// Goes on from the checkpoint of the run, together with all ranks; gives the seconds that the run had taken then, and what the user should know.
    pub(super) fn resume(&mut self, train: &DataLoader<T>) -> Result<(f64, Vec<String>)> {
        let group = self.ranks.as_ref().map(|ranks| ranks.communicator());
        let Some(checkpoint) = load(self.config.run.as_ref(), group.as_deref())? else {
            return Ok((0.0, Vec::new()));
        };
        let record = self.record(&checkpoint)?;
        self.epoch.load_state(&record.epoch)?;
        self.row.load_state(&record.row)?;
        if self.config.run.is_none() {
            // Rank 0 has what all had together.
            self.epoch.reset_metrics();
            self.row.reset_metrics();
        }
        self.restore(train, &checkpoint, &record)?;
        self.history.go_back(&record.rows);
        let Some(run) = &self.config.run else {
            return Ok((record.seconds, Vec::new()));
        };
        let (files, notices) = Files::resume(run, self.columns(), self.step, &record.rows)?;
        write(&run.config(), self.config.config.as_bytes())?;
        self.files = Some(files);
        Ok((record.seconds, notices))
    }

    pub(super) fn record(&self, checkpoint: &Checkpoint) -> Result<Record> {
        let damaged = |e| self.unfit(&format!("its record is damaged ({e})"));
        Record::deserialize(&checkpoint.config).map_err(damaged)
    }

    fn unfit(&self, what: &str) -> Error {
        unfit(self.config.run.as_ref(), what)
    }

    /// Brings model, optimizer and loader to a state.
    pub(super) fn restore(&mut self, train: &DataLoader<T>, checkpoint: &Checkpoint, record: &Record) -> Result<()> {
        if let Some(ema) = &mut self.ema {
            ema.load_state_dict(checkpoint.part(EMA)?)?;
        }
        if let Some(scaler) = &mut self.scaler {
            scaler.load_state_dict(checkpoint.part(GRAD_SCALER)?)?;
        }
        self.step = checkpoint.restore(&*self.model, self.stepper.optimizer_mut())?;
        if let Some(length) = train
            .examples()
            .filter(|&length| record.loader.position > length as u64)
        {
            let position = record.loader.position;
            return Err(self.unfit(&format!("it stands at example {position} of an epoch of {length}")));
        }
        train.set_state(record.loader);
        (self.best, self.since_best) = (record.best, record.since_best);
        Ok(())
    }

    /// Opens the files of a run that was taken over, as they were at the last checkpoint.
    pub(super) fn reopen(&mut self) -> Result<()> {
        let Some(run) = &self.config.run else { return Ok(()) };
        let checkpoint = Checkpoint::load(run.checkpoint())?;
        let record = self.record(&checkpoint)?;
        let (files, _) = Files::resume(run, self.columns(), checkpoint.step, &record.rows)?;
        self.files = Some(files);
        Ok(())
    }

    /// Leaves all that is needed to go on from here, and the model.
    pub(super) fn save(&self, train: &DataLoader<T>) -> Result<()> {
        let (Some(run), Some(files)) = (&self.config.run, &self.files) else {
            return self.write_checkpoint(train, Mark::default());
        };
        run.check()?;
        let saved = files.mark().and_then(|mark| self.write_checkpoint(train, mark));
        saved.map_err(|e| self.lost(e))?;
        self.save_model()
    }

    fn write_model(&self, path: &Path) -> Result<()> {
        let state = self.model.state_dict()?;
        state.save_with_metadata(path, &self.config.model_metadata)
    }

    /// Leaves the model as it is now.
    pub(super) fn save_model(&self) -> Result<()> {
        match &self.config.run {
            Some(run) => self
                .averaged(|| self.write_model(&run.model()))?
                .map_err(|e| self.lost(e)),
            None => Ok(()),
        }
    }

    /// Keeps the model as the best so far.
    pub(super) fn save_best(&mut self) -> Result<()> {
        match &self.config.run {
            Some(run) => self
                .averaged(|| self.write_model(&run.best()))?
                .map_err(|e| self.lost(e)),
            None if self.config.restore_best => {
                self.best_state = Some(self.averaged(|| self.model.state_dict())??);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Makes the model the best one again.
    pub(super) fn restore_best(&mut self) -> Result<()> {
        match (&self.config.run, &self.best_state) {
            (Some(run), _) if self.best.is_some() => self.model.load(run.best()),
            (None, Some(state)) => self.model.load_state_dict(state, true).map(drop),
            _ => Ok(()),
        }
    }

    /// Takes down a measurement.
    pub(super) fn append(&mut self, row: &Row) -> Result<()> {
        let (Some(run), Some(files)) = (&self.config.run, &mut self.files) else {
            self.history.push(row.clone());
            return Ok(());
        };
        run.check()?;
        files.append(row).map_err(|e| self.lost(e))
    }

    /// A failure of the disk leaves the last checkpoint whole, unless its folder is what failed.
    fn lost(&self, error: Error) -> Error {
        let lost = self.config.run.as_ref().and_then(|run| run.check().err());
        lost.unwrap_or(error)
    }

    fn write_checkpoint(&self, train: &DataLoader<T>, rows: Mark) -> Result<()> {
        if !self.saves() {
            return Ok(());
        }
        self.settle()?;
        let state = |tally: &Tally| match &self.ranks {
            Some(ranks) => ranks.merged(tally).map(|merged| merged.state()),
            None => Ok(tally.state()),
        };
        let checkpoint = self.snapshot(train, state(&self.epoch)?, state(&self.row)?, rows)?;
        match &self.config.run {
            Some(run) => checkpoint.save(run.checkpoint()),
            None => Ok(()),
        }
    }

    /// All that is needed to go on from here.
    pub(super) fn snapshot(
        &self,
        train: &DataLoader<T>,
        epoch: TallyState,
        row: TallyState,
        rows: Mark,
    ) -> Result<Checkpoint> {
        let record = Record {
            settings: self.config.settings.clone(),
            loader: train.state(),
            seconds: self.seconds(),
            epoch,
            row,
            best: self.best,
            since_best: self.since_best,
            rows,
        };
        let record = serde_json::to_value(record).map_err(|e| {
            let message = format!("the state of the run cannot be written: {e}");
            Error::new(ErrorKind::Format, message)
        })?;
        let mut checkpoint = Checkpoint::new(&*self.model, self.optimizer(), self.step)?.with_config(record);
        if let Some(ema) = &self.ema {
            checkpoint = checkpoint.with_part(EMA, ema.state_dict()?);
        }
        if let Some(scaler) = &self.scaler {
            checkpoint = checkpoint.with_part(GRAD_SCALER, scaler.state_dict());
        }
        Ok(checkpoint)
    }
}
