//! Training of what learns by itself, step by step.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polygrad_core::communicator::{Communicator, HostSliceMut, Reduction};
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_nn::{Checkpoint, Module};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::{Length, TrainerConfig};
use super::event::{Figures, Seen};
use super::files::{Files, load, unfit};
use super::ranks::{Found, SharedRun};
use super::recover::{FROM_CHECKPOINT, Left, left, notice, recovered};
use super::{Control, Ended, Event, Progress, Summary};
use crate::run::{Columns, Mark, Unwritten, write};
use crate::{Row, Split};

/// Parts of a training: rows of measurements, checkpoints, and lines of the progress bar, where nothing else is asked for.
const ROWS: u64 = 200;
const CHECKPOINTS: u64 = 20;
const LINES: u64 = 10;

/// Something that learns step by step and finds its own data, such as reinforcement learning. [`TrainerConfig::train`] trains it.
///
/// One that learns together with those of other [ranks](Learner::communicator) has the same steps, metrics and score as they, and every
/// rank calls the same methods, but for [`Learner::save_model`]. Where a rank is lost, those who are left go back to the last checkpoint of the
/// run and go on, if the learner [can](Learner::rejoin).
pub trait Learner {
    /// The group that it is one of. Default: it learns alone.
    fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        None
    }

    /// What is counted as a step, in the plural: `environment steps`.
    fn unit(&self) -> &'static str;

    /// What is measured beside the loss, in the order of [`Measured::metrics`].
    fn metrics(&self) -> &'static [&'static str];

    /// Steps so far.
    fn steps(&self) -> u64;

    /// Whether there is nothing more to learn.
    fn is_done(&self) -> bool;

    /// Learns for some steps.
    ///
    /// # Errors
    /// What ends the training.
    fn advance(&mut self) -> Result<Measured>;

    /// How good it is, by which the best model is kept: the higher the better; none while that is unknown.
    fn score(&self) -> Option<f64>;

    /// All that is needed to go on from here. Its `config` is an object.
    ///
    /// # Errors
    /// What cannot be saved.
    fn checkpoint(&self) -> Result<Checkpoint>;

    /// Goes on from a checkpoint, whatever has been learnt since; gives what the user should know.
    ///
    /// # Errors
    /// When it does not fit.
    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>>;

    /// Is from now on one of `group`, those who are left of its ranks after others were lost; [`Learner::restore`] comes next. Gives whether it can be:
    /// if not, training ends with the error by which the loss was found. Default: it cannot.
    ///
    /// # Errors
    /// When memory runs out; those of the group.
    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        let _ = group;
        Ok(false)
    }

    /// The model, for callbacks: [`Progress::module`]. Default: none is shown.
    fn model(&self) -> Option<&dyn Module> {
        None
    }

    /// Writes the model, for use, with [texts by name](TrainerConfig::model_metadata) in the file's header.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()>;
}

/// What [`Learner::advance`] has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The loss.
    pub loss: f64,
    /// The metrics; NaN of what there was nothing to measure of.
    pub metrics: Vec<f64>,
    /// The learning rate.
    pub learning_rate: f64,
    /// Seconds that it waited for data, such as for environments.
    pub loading_seconds: f64,
}

/// Means of measurements; what is NaN is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Means {
    names: Vec<String>,
    /// Sums and counts, of the loss first.
    sums: Vec<(f64, u64)>,
}

impl Means {
    fn new(names: &[&str]) -> Self {
        Self {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            sums: vec![(0.0, 0); names.len() + 1],
        }
    }

    fn add(&mut self, measured: &Measured) {
        let values = std::iter::once(&measured.loss).chain(&measured.metrics);
        for ((sum, count), value) in self.sums.iter_mut().zip(values).filter(|(_, value)| !value.is_nan()) {
            *sum += value;
            *count += 1;
        }
    }

    fn reset(&mut self) {
        self.sums.fill((0.0, 0));
    }

    fn mean(&self, at: usize) -> f64 {
        self.sums.get(at).map_or(f64::NAN, |(sum, count)| sum / *count as f64)
    }
}

impl Figures for Means {
    fn loss(&self) -> f64 {
        self.mean(0)
    }

    fn values(&self) -> Vec<f64> {
        (1..self.sums.len()).map(|at| self.mean(at)).collect()
    }

    fn shown(&self, at: usize, value: f64) -> Option<String> {
        let text = match value.abs() {
            x if x >= 100.0 => format!("{value:.1}"),
            _ => format!("{value:.4}"),
        };
        Some(format!("{} {text}", self.names.get(at)?))
    }
}

/// What a checkpoint holds beside what the learner has in it.
#[derive(Serialize, Deserialize)]
struct Record {
    settings: Value,
    seconds: f64,
    best: Option<f64>,
    row: Means,
    part: Means,
    rows: Mark,
}

/// A learner that is being trained.
struct Training<'a, L: Learner + ?Sized> {
    learner: &'a mut L,
    config: TrainerConfig,
    total: u64,
    names: Vec<String>,
    /// Since the last row, and since the last line.
    row: Means,
    part: Means,
    best: Option<f64>,
    /// Steps and seconds when this process took over.
    before: (u64, f64),
    clock: Instant,
    training: Duration,
    loading: f64,
    learning_rate: f64,
    history: Unwritten,
    files: Option<Files>,
    /// The run that rank 0 keeps, where it is one of several.
    run: Option<SharedRun>,
    /// Whether somebody wants to stop.
    stop: bool,
}

impl TrainerConfig {
    /// Trains something that learns by itself, to the [steps](TrainerConfig::steps) or to its own end, or goes on to it from where the run stands.
    ///
    /// Of the options those count that are about the length, the run, settings, rows, checkpoints, callbacks, stopping and the group. Rows
    /// are means of what was measured since the row before; by default there are 200, and 20 checkpoints. [`Row::step`] and [`Row::epoch`]
    /// are both the learner's steps. The model of the best [score](Learner::score) at a checkpoint is kept as that.
    ///
    /// One of a [group](TrainerConfig::parallel) trains a learner that is one of it, too. Rank 0 alone keeps the run; whoever is
    /// asked to stop stops all. Where a rank is lost and the engine can go on without it ([`Communicator::shrink`]), those who are left go back to the
    /// last checkpoint of the run and go on from there; the learner is then one of the group that they are.
    ///
    /// # Errors
    /// An option that is for batches; a group that is not the learner's; those of the learner, of callbacks, of the disk and of the other
    /// ranks. The last checkpoint then still is there.
    pub fn train(self, learner: &mut (impl Learner + ?Sized)) -> Result<Summary> {
        let Length::Steps(total) = self.length else {
            return Err(wrong("a learner has steps, and no epochs").with_hint("TrainerConfig::steps"));
        };
        let foreign = [
            ("accumulate", self.accumulate != 1),
            ("clip_grad_norm", self.max_norm.is_some()),
            ("schedule", self.schedule.is_some()),
            ("ema", self.ema.is_some()),
            ("autocast", self.autocast.is_some()),
            ("metric", !self.metrics.is_empty()),
            ("monitor", self.monitor.is_some()),
            ("early_stopping", self.patience.is_some()),
            ("restore_best", self.restore_best),
        ];
        if let Some((name, _)) = foreign.iter().find(|(_, given)| *given) {
            return Err(wrong(&format!(
                "{name} is for a Trainer: a learner knows how it learns"
            )));
        }
        let config = self.checked()?;
        let is_one_of_it = match (config.group()?, learner.communicator()) {
            (None, None) => true,
            (Some(group), Some(own)) => Arc::ptr_eq(group, own),
            _ => false,
        };
        if !is_one_of_it {
            return Err(wrong("the learner is not one of the ranks that the trainer is one of")
                .with_hint("give both the same group, the trainer by TrainerConfig::parallel"));
        }
        let metrics = learner.metrics();
        let mut training = Training {
            names: metrics.iter().map(|name| (*name).to_owned()).collect(),
            row: Means::new(metrics),
            part: Means::new(metrics),
            learner,
            config,
            total,
            best: None,
            before: (0, 0.0),
            clock: Instant::now(),
            training: Duration::ZERO,
            loading: 0.0,
            learning_rate: 0.0,
            history: Unwritten::default(),
            files: None,
            run: None,
            stop: false,
        };
        let trained = training.run();
        if let Err(error) = &trained {
            if let Some(group) = training.group().filter(|_| error.kind() != ErrorKind::Communication) {
                group.abort(&error.to_string());
            }
            // The error that ended training is the one to report.
            let _ = training.tell(Event::Failed);
        }
        trained
    }
}

fn wrong(message: &str) -> Error {
    Error::invalid(message.to_owned()).with_op("Trainer")
}

/// Whether going from `before` to `now` steps passes a multiple of `every`.
fn passes(before: u64, now: u64, every: u64) -> bool {
    before / every != now / every
}

impl<L: Learner + ?Sized> Training<'_, L> {
    fn run(&mut self) -> Result<Summary> {
        let notices = self.begin()?;
        self.clock = Instant::now();
        self.before.0 = self.learner.steps();
        self.tell(Event::Begin)?;
        self.notify(&notices)?;
        let ended = loop {
            match self.learn() {
                Ok(ended) => break ended,
                Err(error) => recovered(error, || self.try_recover())?,
            }
        };
        if let Some(run) = &self.config.run {
            run.check()?;
            // A kill between the last checkpoint and here would otherwise leave it out for good.
            self.learner.save_model(&run.model(), &self.config.model_metadata)?;
        }
        self.tell(Event::End)?;
        Ok(Summary {
            ended,
            steps: self.learner.steps(),
            epochs: 0,
            evaluation: None,
            best: self.best,
            seconds: self.seconds(),
        })
    }

    /// Learns to the end, or until somebody asks to stop.
    fn learn(&mut self) -> Result<Ended> {
        let part = |parts: u64| (self.total / parts).max(1);
        let (row, line) = (self.config.log_every.unwrap_or(part(ROWS)), part(LINES));
        let checkpoint = self.config.checkpoint_every.unwrap_or(part(CHECKPOINTS));
        while !self.is_done() {
            self.stop = self.any(self.stop)?;
            if self.stop {
                self.save()?;
                return Ok(Ended::Stopped);
            }
            let (before, begun) = (self.learner.steps(), Instant::now());
            let measured = self.learner.advance()?;
            self.training += begun.elapsed();
            self.loading += measured.loading_seconds;
            self.learning_rate = measured.learning_rate;
            self.row.add(&measured);
            self.part.add(&measured);
            let (now, is_done) = (self.learner.steps(), self.is_done());
            self.tell(Event::Step)?;
            if is_done || passes(before, now, row) {
                self.add_row()?;
            }
            if is_done || passes(before, now, line) {
                self.tell(Event::Epoch(None))?;
                self.part.reset();
            }
            if is_done || passes(before, now, checkpoint) {
                self.save()?;
            }
        }
        Ok(Ended::Done)
    }

    /// Agrees with those who are left on who they are, and goes back to the last checkpoint with them.
    fn try_recover(&mut self) -> Result<Left<()>> {
        let Some(before) = self.group().cloned() else {
            return Ok(Left::End);
        };
        let Some(group) = left(&*before)? else {
            return Ok(Left::End);
        };
        if !self.learner.rejoin(&group)? {
            return Ok(Left::End);
        }
        let Some(run) = &self.run else {
            return Ok(Left::Miss("what its learner had"));
        };
        run.take_over(&mut self.config, &*group)?;
        let (_, notices) = self.resume()?;
        // For callbacks that write down steps, it is a beginning.
        self.tell(Event::Begin)?;
        self.notify(&[notice(&*before, &*group, FROM_CHECKPOINT, self.learner.steps())])?;
        self.notify(&notices)?;
        Ok(Left::GoOn(()))
    }

    /// The group as it is now.
    fn group(&self) -> Option<&Arc<dyn Communicator>> {
        self.learner.communicator()
    }

    fn notify(&mut self, notices: &[String]) -> Result<()> {
        notices.iter().try_for_each(|notice| self.tell(Event::Notice(notice)))
    }

    fn is_done(&self) -> bool {
        self.learner.is_done() || self.learner.steps() >= self.total
    }

    fn columns(&self) -> Columns {
        Columns {
            metrics: self.names.clone(),
            validation: self.config.validation.clone(),
        }
    }

    /// Whether any rank wants to stop.
    fn any(&self, stop: bool) -> Result<bool> {
        let mut stops = [u8::from(stop)];
        if let Some(group) = self.group() {
            group.all_reduce(HostSliceMut::new(&mut stops), Reduction::Max)?;
        }
        Ok(stops != [0])
    }

    /// Begins the run in its folder, or goes on with it, together with all ranks; gives what the user should know.
    fn begin(&mut self) -> Result<Vec<String>> {
        let mut found = Found::of(self.config.run.as_ref());
        if let Some(group) = self.group() {
            found = found.agreed(&**group)?;
        }
        if let Some(group) = self.group().filter(|_| found != Found::Nothing) {
            self.run = Some(SharedRun::agreed(&self.config, &**group)?);
        }
        match found {
            Found::Nothing => Ok(Vec::new()),
            Found::New => self.create(),
            Found::Run => {
                let (seconds, notices) = self.resume()?;
                self.before.1 = seconds;
                Ok(notices)
            }
        }
    }

    fn create(&mut self) -> Result<Vec<String>> {
        let begun = (|| {
            self.write_checkpoint(Mark::default())?;
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
    fn resume(&mut self) -> Result<(f64, Vec<String>)> {
        let run = self.config.run.as_ref();
        let Some(checkpoint) = load(run, self.group().map(|group| &**group))? else {
            return Ok((0.0, Vec::new()));
        };
        let record =
            Record::deserialize(&checkpoint.config).map_err(|e| unfit(run, &format!("its record is damaged ({e})")))?;
        let mut notices = self.learner.restore(&checkpoint)?;
        (self.row, self.part, self.best) = (record.row, record.part, record.best);
        self.history.go_back(&record.rows);
        let Some(run) = run else {
            return Ok((record.seconds, notices));
        };
        let (files, more) = Files::resume(run, self.columns(), self.learner.steps(), &record.rows)?;
        notices.extend(more);
        write(&run.config(), self.config.config.as_bytes())?;
        self.files = Some(files);
        Ok((record.seconds, notices))
    }

    fn add_row(&mut self) -> Result<()> {
        let row = Row {
            step: self.learner.steps(),
            epoch: self.learner.steps() as f64,
            split: Split::Train,
            loss: self.row.loss(),
            metrics: self.row.values(),
            learning_rate: self.learning_rate,
            seconds: self.seconds(),
        };
        self.row.reset();
        match (&self.config.run, &mut self.files) {
            (Some(run), Some(files)) => {
                run.check()?;
                files.append(&row)?;
            }
            _ => self.history.push(row.clone()),
        }
        self.tell(Event::Row(&row))
    }

    /// Whether this rank takes part in writing checkpoints.
    fn saves(&self) -> bool {
        self.config.run.is_some() || self.run.is_some()
    }

    /// Leaves all that is needed to go on from here, and the model.
    fn save(&mut self) -> Result<()> {
        let score = self.learner.score();
        let is_best = score.is_some_and(|score| self.best.is_none_or(|best| score > best));
        if is_best && self.saves() {
            self.best = score;
        }
        let (Some(run), Some(files)) = (&self.config.run, &self.files) else {
            return self.write_checkpoint(Mark::default());
        };
        run.check()?;
        if is_best {
            self.learner.save_model(&run.best(), &self.config.model_metadata)?;
        }
        self.write_checkpoint(files.mark()?)?;
        self.learner.save_model(&run.model(), &self.config.model_metadata)
    }

    fn write_checkpoint(&self, rows: Mark) -> Result<()> {
        if !self.saves() {
            return Ok(());
        }
        let mut checkpoint = self.learner.checkpoint()?;
        let Some(run) = &self.config.run else { return Ok(()) };
        let record = Record {
            settings: self.config.settings.clone(),
            seconds: self.seconds(),
            best: self.best,
            row: self.row.clone(),
            part: self.part.clone(),
            rows,
        };
        let unwritable = |what: &str| {
            let message = format!("the state of the run cannot be written: {what}");
            Error::new(ErrorKind::Format, message)
        };
        let (Value::Object(all), Ok(Value::Object(own))) = (&mut checkpoint.config, serde_json::to_value(record))
        else {
            return Err(unwritable("it is no JSON object"));
        };
        for (name, value) in own {
            if all.insert(name.clone(), value).is_some() {
                return Err(unwritable(&format!("the learner's part has a field {name:?}, too")));
            }
        }
        checkpoint.save(run.checkpoint())
    }

    fn seconds(&self) -> f64 {
        self.before.1 + self.clock.elapsed().as_secs_f64()
    }

    /// Tells the callbacks, and takes down whether one of them, or the flag, asks to stop.
    fn tell(&mut self, event: Event<'_>) -> Result<()> {
        let mut callbacks = std::mem::take(&mut self.config.callbacks);
        let progress = self.progress();
        let mut stop = false;
        let told = callbacks.iter_mut().try_for_each(|callback| {
            stop |= callback.on_event(event, &progress)? == Control::Stop;
            Ok(())
        });
        self.config.callbacks = callbacks;
        let flag = self.config.stop.as_ref();
        self.stop |= stop || flag.is_some_and(|flag| flag.load(Ordering::Relaxed));
        told
    }

    fn progress(&self) -> Progress<'_> {
        let (step, elapsed) = (self.learner.steps(), self.clock.elapsed().as_secs_f64());
        let done = step - self.before.0.min(step);
        let left = self.total.saturating_sub(step);
        Progress {
            epoch: 0,
            epochs: None,
            step,
            steps: Some(self.total),
            examples: done,
            unit: self.learner.unit(),
            training_seconds: self.training.as_secs_f64(),
            loading_seconds: self.loading,
            evaluation_seconds: 0.0,
            seconds: self.seconds(),
            seconds_left: (done > 0).then(|| elapsed / done as f64 * left as f64),
            learning_rate: self.learning_rate,
            metrics: &self.names,
            validation: &self.config.validation,
            run: self.config.run.as_ref().map(|run| run.path()),
            history: self.files.as_ref().map_or(self.history.rows(), Files::rows),
            figures: &self.part,
            seen: Seen {
                module: self.learner.model(),
                ..Seen::default()
            },
        }
    }
}
