//! Beginning, saving and resuming a run.

use std::time::Instant;

use polygrad_core::{Error, ErrorKind, Result};
use polygrad_nn::Checkpoint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{Files, load, place, unfit};
use super::means::Means;
use super::shared::{Found, SharedRun};
use super::{Driver, Learner};
use crate::run::{Mark, write};

/// The driver's part of a checkpoint.
#[derive(Serialize, Deserialize)]
struct Record {
    settings: Value,
    seconds: f64,
    best: Option<f64>,
    rows: Mark,
}

/// The part of a checkpoint for a learner without figures of its own.
#[derive(Serialize, Deserialize)]
struct Averages {
    row: Means,
    part: Means,
}

impl Driver {
    /// Begins or resumes the run in its folder, together with all ranks; returns notices for the user.
    pub(super) fn begin(&mut self, learner: &mut dyn Learner) -> Result<Vec<String>> {
        learner.begin()?;
        let run = self.options.run.as_ref().filter(|_| self.files.is_none());
        let mut found = Found::of(run);
        if let Some(group) = learner.communicator() {
            found = found.agreed(&**group)?;
            if found != Found::Nothing {
                self.shared = Some(SharedRun::agreed(&self.options, &**group)?);
            }
        }
        let mut notices = Vec::new();
        match found {
            Found::Nothing => {}
            Found::New => self.create(learner)?,
            Found::Run => (self.before.1, notices) = self.resume(learner)?,
        }
        learner.ready()?;
        Ok(notices)
    }

    fn create(&mut self, learner: &dyn Learner) -> Result<()> {
        let begun = (|| {
            // The checkpoint makes the folder a run, since everything else can be derived from it: a kill before it
            // leaves nothing, and one after it leaves a run that can be resumed.
            self.write_checkpoint(learner, Mark::default())?;
            let Some(run) = &self.options.run else { return Ok(None) };
            write(&run.config(), self.options.config.as_bytes())?;
            Files::create(run, self.columns()).map(Some)
        })();
        // A run that cannot begin must not block the folder for the next attempt.
        self.files = begun.inspect_err(|_: &Error| {
            if let Some(run) = &self.options.run {
                run.clear();
            }
        })?;
        Ok(())
    }

    /// Continues from the checkpoint of the run, together with all ranks; returns the seconds that the run had taken by
    /// then, and notices for the user.
    pub(super) fn resume(&mut self, learner: &mut dyn Learner) -> Result<(f64, Vec<String>)> {
        let run = self.options.run.as_ref();
        let Some(checkpoint) = load(run, learner.communicator().map(|group| &**group))? else {
            return Ok((0.0, Vec::new()));
        };
        let record: Record = self.read(&checkpoint)?;
        let mut notices = learner.restore(&checkpoint)?;
        if learner.figures().is_none() {
            let averages: Averages = self.read(&checkpoint)?;
            (self.row, self.part) = (averages.row, averages.part);
        }
        (self.best, self.is_saved) = (record.best, true);
        self.history.go_back(&record.rows);
        let Some(run) = run else {
            return Ok((record.seconds, notices));
        };
        let (files, more) = Files::resume(run, self.columns(), learner.steps(), &record.rows)?;
        notices.extend(more);
        write(&run.config(), self.options.config.as_bytes())?;
        self.files = Some(files);
        Ok((record.seconds, notices))
    }

    fn read<'de, R: Deserialize<'de>>(&self, checkpoint: &'de Checkpoint) -> Result<R> {
        let place = || place(self.options.run.as_ref());
        R::deserialize(&checkpoint.config).map_err(|e| unfit(&place(), &format!("its record is damaged ({e})")))
    }

    /// Opens the files of a run that was taken over, in their state at the last checkpoint.
    pub(super) fn reopen(&mut self) -> Result<()> {
        let Some(run) = &self.options.run else { return Ok(()) };
        let checkpoint = Checkpoint::load(run.checkpoint())?;
        let record: Record = self.read(&checkpoint)?;
        let (files, _) = Files::resume(run, self.columns(), checkpoint.step, &record.rows)?;
        self.files = Some(files);
        Ok(())
    }

    /// Whether this process takes part in writing checkpoints.
    pub(super) fn saves(&self) -> bool {
        self.options.run.is_some() || self.shared.is_some()
    }

    /// Saves everything needed to continue from here, and the model.
    pub(super) fn save(&mut self, learner: &mut dyn Learner) -> Result<()> {
        if let Some(score) = learner.score() {
            self.judge(learner, score)?;
        }
        self.write(learner)
    }

    pub(super) fn write(&mut self, learner: &dyn Learner) -> Result<()> {
        self.is_saved = true;
        let (Some(run), Some(files)) = (&self.options.run, &self.files) else {
            return self.write_checkpoint(learner, Mark::default());
        };
        let begun = Instant::now();
        run.check()?;
        let saved = files.mark().and_then(|mark| self.write_checkpoint(learner, mark));
        let saved = saved.and_then(|()| learner.save_model(&run.model(), &self.options.model_metadata));
        saved.map_err(|e| self.lost(e))?;
        self.saving = begun.elapsed();
        Ok(())
    }

    /// The error of the run folder if that was lost, else the given one. The last checkpoint is otherwise intact.
    pub(super) fn lost(&self, error: Error) -> Error {
        let lost = self.options.run.as_ref().and_then(|run| run.check().err());
        lost.unwrap_or(error)
    }

    fn write_checkpoint(&self, learner: &dyn Learner, rows: Mark) -> Result<()> {
        if !self.saves() {
            return Ok(());
        }
        let mut checkpoint = learner.checkpoint()?;
        let Some(run) = &self.options.run else { return Ok(()) };
        let record = Record {
            settings: self.options.settings.clone(),
            seconds: self.seconds(),
            best: self.best,
            rows,
        };
        add(&mut checkpoint, record)?;
        if learner.figures().is_none() {
            let (row, part) = (self.row.clone(), self.part.clone());
            add(&mut checkpoint, Averages { row, part })?;
        }
        checkpoint.save(run.checkpoint())
    }
}

/// Adds the fields of `part` to a checkpoint's record.
fn add(checkpoint: &mut Checkpoint, part: impl Serialize) -> Result<()> {
    let unwritable = |what: &str| {
        let message = format!("the state of the run cannot be written: {what}");
        Error::new(ErrorKind::Format, message)
    };
    let part = serde_json::to_value(part).map_err(|e| unwritable(&e.to_string()))?;
    let (Value::Object(all), Value::Object(part)) = (&mut checkpoint.config, part) else {
        return Err(unwritable("it is no JSON object"));
    };
    for (name, value) in part {
        if all.insert(name.clone(), value).is_some() {
            return Err(unwritable(&format!("the learner's part has a field {name:?}, too")));
        }
    }
    Ok(())
}
