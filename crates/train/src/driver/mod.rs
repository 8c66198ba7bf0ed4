//! The driver of any learner: it handles the run folder, rows, checkpoints, the best model, callbacks, and agreement
//! between several processes.

mod checkpoints;
mod config;
mod event;
mod files;
mod learner;
mod means;
mod recover;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polygrad_core::{ErrorKind, Result};

pub use config::RunConfig;
pub(crate) use config::{Length, RunOptions, at_least_one};
use event::Shown;
pub use event::{Callback, Control, Event, Progress};
pub(crate) use files::{place, unfit};
pub use learner::{Epochs, Evaluation, Figures, LastStep, Learner, Measured};
pub(crate) use shared::share;

use crate::run::{Columns, Unwritten};
use crate::{Row, Split};
use files::Files;
use means::Means;
use recover::recovered;
use shared::SharedRun;

/// Number of rows, checkpoints, and lines of the progress bar in the training of a learner without epochs, by default.
const ROWS: u64 = 200;
const CHECKPOINTS: u64 = 20;
const LINES: u64 = 10;

/// A checkpoint follows each step that takes at least this long, and this many times as long as writing it, so that the
/// next step can be abandoned if training is to stop.
const LONG: Duration = Duration::from_secs(1);
const RATIO: u32 = 50;

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// All epochs or steps are done.
    Done,
    /// The evaluations stopped improving.
    EarlyStopping,
    /// A callback or the flag requested a stop.
    Stopped,
}

/// The result of a training.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// How it ended.
    pub ended: Ended,
    /// Total steps of the run.
    pub steps: u64,
    /// Total whole epochs of the run.
    pub epochs: u64,
    /// The last evaluation.
    pub evaluation: Option<Row>,
    /// The best score; for a [`Trainer`](crate::Trainer) the [monitored](crate::TrainerConfig::monitor) value.
    pub best: Option<f64>,
    /// Total wall-clock seconds of the run.
    pub seconds: f64,
}

/// Trains a learner, once or repeatedly.
pub(crate) struct Driver {
    pub(crate) options: RunOptions,
    names: Vec<String>,
    /// For a learner without figures of its own: since the last row, and since the last line.
    row: Means,
    part: Means,
    pub(crate) best: Option<f64>,
    /// Steps and seconds of the run before this training.
    before: (u64, f64),
    clock: Option<Instant>,
    training: Duration,
    evaluation: Duration,
    loading: f64,
    learning_rate: f64,
    history: Unwritten,
    files: Option<Files>,
    /// The run that rank 0 keeps, if this is one of several processes.
    shared: Option<SharedRun>,
    /// Whether a callback or the flag has requested a stop.
    stop: bool,
    /// Whether the last checkpoint is up to date.
    is_saved: bool,
    /// How long the last one took to write.
    saving: Duration,
}

/// What is due after a step.
#[derive(Default)]
struct Due {
    line: bool,
    checkpoint: bool,
    /// A checkpoint only so that the next step can be abandoned.
    fallback: bool,
}

fn is_set(flag: Option<&Arc<AtomicBool>>) -> bool {
    flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Whether a multiple of `every` lies between `before` and `now` steps.
fn passes(before: u64, now: u64, every: u64) -> bool {
    before / every != now / every
}

impl Driver {
    pub(crate) fn new(options: RunOptions) -> Self {
        Self {
            options,
            names: Vec::new(),
            row: Means::default(),
            part: Means::default(),
            best: None,
            before: (0, 0.0),
            clock: None,
            training: Duration::ZERO,
            evaluation: Duration::ZERO,
            loading: 0.0,
            learning_rate: 0.0,
            history: Unwritten::default(),
            files: None,
            shared: None,
            stop: false,
            is_saved: true,
            saving: Duration::ZERO,
        }
    }

    /// All measurements of the run, oldest first; for a run resumed without its `metrics.csv`, those since then.
    pub(crate) fn history(&self) -> &[Row] {
        self.files.as_ref().map_or(self.history.rows(), Files::rows)
    }

    /// Trains to the end, beginning or resuming the run.
    ///
    /// # Errors
    /// Those of the learner, of callbacks, of the disk and of the other ranks. The last checkpoint is then still there.
    pub(crate) fn run(&mut self, learner: &mut dyn Learner) -> Result<Summary> {
        if self.names.is_empty() {
            self.names = learner.metrics().into_iter().map(str::to_owned).collect();
            (self.row, self.part) = (Means::new(&self.names), Means::new(&self.names));
        }
        let ran = self.try_run(learner);
        if let Err(error) = &ran {
            if let Some(group) = learner
                .communicator()
                .filter(|_| error.kind() != ErrorKind::Communication)
            {
                group.abort(&error.to_string());
            }
            // Report only the error that ended training.
            let _ = self.tell(learner, Event::Failed);
        }
        ran
    }

    fn try_run(&mut self, learner: &mut dyn Learner) -> Result<Summary> {
        self.stop = false;
        let notices = self.begin(learner)?;
        self.clock = Some(Instant::now());
        self.before.0 = learner.steps();
        self.tell(learner, Event::Begin)?;
        self.notify(learner, &notices)?;
        let ended = loop {
            match self.turn(learner) {
                Ok(Some(ended)) => break ended,
                Ok(None) => {}
                Err(error) => recovered(error, || self.try_recover(learner))?,
            }
        };
        if let Some(run) = &self.options.run {
            run.check()?;
            // Otherwise, after a kill between the last checkpoint and here, the model file would never be written.
            let saved = learner.save_model(&run.model(), &self.options.model_metadata);
            saved.map_err(|e| self.lost(e))?;
            // Makes sure that the folder really contains what will be reported.
            run.check()?;
        }
        self.tell(learner, Event::End)?;
        (self.before, self.clock) = ((learner.steps(), self.seconds()), None);
        let evaluation = self.history().iter().rfind(|row| row.split == Split::Validation);
        Ok(Summary {
            ended,
            steps: learner.steps(),
            epochs: learner.epochs().map_or(0, |epochs| epochs.done),
            evaluation: evaluation.cloned(),
            best: self.best,
            seconds: self.before.1,
        })
    }

    /// One step, and everything due after it; returns how training ends if it ends here.
    fn turn(&mut self, learner: &mut dyn Learner) -> Result<Option<Ended>> {
        // An earlier error may have come between the end of an epoch and its evaluation, which is then still due.
        let mut due = Due {
            checkpoint: true,
            ..Due::default()
        };
        if !learner.is_over() {
            if let Some(ended) = self.ended(learner)? {
                if ended == Ended::Stopped && !self.is_saved {
                    self.save(learner)?;
                }
                learner.end()?;
                return Ok(Some(ended));
            }
            due = self.advance(learner)?;
        }
        let is_over = learner.is_over();
        if is_over || due.line {
            self.finish_epoch(learner)?;
        }
        if is_over || due.checkpoint {
            self.save(learner)?;
        } else if due.fallback {
            // Without judging the model, so that the best one does not depend on the time that steps take.
            self.write(learner)?;
        }
        Ok(None)
    }

    fn ended(&self, learner: &mut dyn Learner) -> Result<Option<Ended>> {
        let stops = learner.stops(self.stop)?;
        Ok(match () {
            () if self.is_done(learner) => Some(Ended::Done),
            () if learner.stops_early() => Some(Ended::EarlyStopping),
            () => stops.then_some(Ended::Stopped),
        })
    }

    fn is_done(&self, learner: &dyn Learner) -> bool {
        learner.is_done() || self.total().is_some_and(|total| learner.steps() >= total)
    }

    /// Total number of steps, if the options give it.
    fn total(&self) -> Option<u64> {
        match self.options.length {
            Length::Steps(steps) => Some(steps),
            Length::Epochs(_) => None,
        }
    }

    fn advance(&mut self, learner: &mut dyn Learner) -> Result<Due> {
        let (before, begun) = (learner.steps(), Instant::now());
        let alone = self.options.run.is_some() && learner.communicator().is_none();
        let flag = self.options.stop.clone().filter(|_| alone);
        let watches = learner.watch(flag.as_ref().filter(|_| self.is_saved));
        let measured = learner.advance();
        let notices = learner.take_notices();
        let told = self.notify(learner, &notices);
        let measured = measured.inspect_err(|error| {
            if learner.communicator().is_none() && learner.survives(error) {
                // Report only the error that ended training.
                let _ = self.save(learner);
            }
        })?;
        told?;
        let (now, took) = (learner.steps(), begun.elapsed());
        if now == before && self.is_saved && watches && is_set(flag.as_ref()) {
            self.stop = true;
            return Ok(Due::default());
        }
        self.training += took;
        self.loading += measured.loading_seconds;
        self.learning_rate = measured.learning_rate;
        self.row.add(&measured);
        self.part.add(&measured);
        self.is_saved = false;
        let is_done = self.is_done(learner);
        if now > before {
            self.tell(learner, Event::Step)?;
            learner.forget_step();
        }
        let part = |parts: u64| (self.total().unwrap_or(0) / parts).max(1);
        let is_part_over = |every: u64| is_done || passes(before, now, every);
        let (has_epochs, every) = (learner.epochs().is_some(), self.options.log_every);
        let due = Due {
            line: !has_epochs && is_part_over(part(LINES)),
            checkpoint: match self.options.checkpoint_every {
                Some(every) => is_part_over(every),
                None => !has_epochs && is_part_over(part(CHECKPOINTS)),
            },
            fallback: watches && flag.is_some() && took > LONG.max(self.saving * RATIO),
        };
        let is_row_due = learner.is_row_due(every);
        if is_row_due.unwrap_or_else(|| is_part_over(every.unwrap_or(part(ROWS)))) {
            self.add_train_row(learner)?;
        }
        Ok(due)
    }

    /// Ends an epoch, or a part of a training without epochs: evaluates if there are data for it, and resets the
    /// figures.
    fn finish_epoch(&mut self, learner: &mut dyn Learner) -> Result<()> {
        let begun = Instant::now();
        let evaluation = learner.evaluate()?;
        self.evaluation += begun.elapsed();
        let mut row = None;
        if let Some(found) = evaluation {
            let row = row.insert(self.row_of(learner, Split::Validation, found.loss, found.metrics));
            self.add_row(learner, row)?;
            self.judge(learner, found.score)?;
        }
        self.tell(learner, Event::Epoch(row.as_ref()))?;
        self.part.reset();
        learner.finish_epoch();
        Ok(())
    }

    /// Keeps the model if this score is the best so far.
    fn judge(&mut self, learner: &mut dyn Learner, score: f64) -> Result<()> {
        let is_best = !score.is_nan() && self.best.is_none_or(|best| learner.is_better(score, best));
        learner.judged(is_best)?;
        if !is_best {
            return Ok(());
        }
        self.best = Some(score);
        match &self.options.run {
            Some(run) => learner
                .save_model(&run.best(), &self.options.model_metadata)
                .map_err(|e| self.lost(e)),
            None => Ok(()),
        }
    }

    fn add_train_row(&mut self, learner: &mut dyn Learner) -> Result<()> {
        let (loss, metrics) = match learner.take_row()? {
            Some(figures) => figures,
            None => (self.row.loss(), self.row.values()),
        };
        self.row.reset();
        let row = self.row_of(learner, Split::Train, loss, metrics);
        self.add_row(learner, &row)
    }

    fn row_of(&self, learner: &dyn Learner, split: Split, loss: f64, metrics: Vec<f64>) -> Row {
        let epochs = learner.epochs();
        Row {
            step: learner.steps(),
            epoch: epochs.map_or(learner.steps() as f64, |epochs| epochs.done as f64 + epochs.part),
            split,
            loss,
            metrics,
            learning_rate: epochs.map_or(self.learning_rate, |epochs| epochs.learning_rate),
            seconds: self.seconds(),
        }
    }

    fn add_row(&mut self, learner: &dyn Learner, row: &Row) -> Result<()> {
        match (&self.options.run, &mut self.files) {
            (Some(run), Some(files)) => {
                run.check()?;
                files.append(row).map_err(|e| self.lost(e))?;
            }
            _ => self.history.push(row.clone()),
        }
        self.tell(learner, Event::Row(row))
    }

    fn columns(&self) -> Columns {
        Columns {
            metrics: self.names.clone(),
            validation: self.options.validation.clone(),
        }
    }

    fn seconds(&self) -> f64 {
        self.before.1 + self.clock.map_or(0.0, |clock| clock.elapsed().as_secs_f64())
    }

    fn notify(&mut self, learner: &dyn Learner, notices: &[String]) -> Result<()> {
        let mut notices = notices.iter();
        notices.try_for_each(|notice| self.tell(learner, Event::Notice(notice)))
    }

    /// Calls the callbacks, and records whether one of them, or the flag, requests a stop.
    fn tell(&mut self, learner: &dyn Learner, event: Event<'_>) -> Result<()> {
        let mut callbacks = std::mem::take(&mut self.options.callbacks);
        let progress = self.progress(learner, event);
        let mut stop = false;
        let told = callbacks.iter_mut().try_for_each(|callback| {
            stop |= callback.on_event(event, &progress)? == Control::Stop;
            Ok(())
        });
        self.options.callbacks = callbacks;
        self.stop |= stop || is_set(self.options.stop.as_ref());
        told
    }

    fn progress<'a>(&'a self, learner: &'a dyn Learner, event: Event<'_>) -> Progress<'a> {
        let (step, epochs) = (learner.steps(), learner.epochs());
        let steps = self.total().or(epochs.and_then(|epochs| epochs.steps));
        let (done, elapsed) = (step.saturating_sub(self.before.0), self.seconds() - self.before.1);
        let left = steps.filter(|_| done > 0).map(|steps| steps.saturating_sub(step));
        let last = match learner.last_step() {
            last if matches!(event, Event::Step) => last,
            LastStep { model, .. } => LastStep {
                model,
                ..LastStep::default()
            },
        };
        Progress {
            epoch: epochs.map_or(0, |epochs| epochs.running),
            epochs: epochs.and_then(|epochs| epochs.total),
            step,
            steps,
            examples: epochs.map_or(done, |epochs| epochs.examples),
            unit: learner.unit(),
            training_seconds: self.training.as_secs_f64(),
            loading_seconds: self.loading,
            evaluation_seconds: self.evaluation.as_secs_f64(),
            seconds: self.seconds(),
            seconds_left: left.map(|left| elapsed / done as f64 * left as f64),
            learning_rate: epochs.map_or(self.learning_rate, |epochs| epochs.learning_rate),
            metrics: &self.names,
            validation: &self.options.validation,
            run: self.options.run.as_ref().map(|run| run.path()),
            history: self.history(),
            figures: learner.figures().unwrap_or(&self.part),
            module: Shown(learner.model()),
            last,
        }
    }
}
