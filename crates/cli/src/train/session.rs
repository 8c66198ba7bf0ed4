//! The training loop.

use std::time::Instant;

use polygrad::nn::{Checkpoint, Module};
use polygrad::{Backend, Device, manual_seed};

use super::learner::Learner;
use super::position::{Position, Record};
use super::settings;
use crate::Outcome;
use crate::data::files::Dataset;
use crate::evaluation::evaluate;
use crate::failure::{Failure, Result};
use crate::feed::{Epoch, Feed};
use crate::interrupt::Interrupt;
use crate::progress::{Progress, Step, clock, note};
use crate::run::config::{Config, name};
use crate::run::events::Events;
use crate::run::metrics::{Metrics, Row, Split};
use crate::run::{RunFolder, atomic, curves};

/// A row of the metrics is a tenth of an epoch.
const ROWS_PER_EPOCH: usize = 10;

/// A run in the making.
pub(super) struct Session<'a, B: Backend> {
    config: Config,
    folder: RunFolder,
    learner: Learner<'a, B>,
    test: Feed<'a, B>,
    position: Position,
    metrics: Metrics,
    events: Events,
    progress: Progress,
    started: Instant,
    /// What `position.seconds` was when this process took over.
    seconds_before: f64,
}

impl<'a, B: Backend> Session<'a, B> {
    /// Begins a run in `folder`, and leaves its first checkpoint there.
    ///
    /// # Errors
    /// Those of the device and the disk; images that do not suit the model.
    pub(super) fn start(config: Config, folder: RunFolder, data: &'a Dataset, device: &'a Device<B>) -> Result<Self> {
        manual_seed(config.seed);
        let learner = Learner::new(&config, data, device)?;
        let begin = || {
            config.save(&folder.config())?;
            let metrics = Metrics::create(&folder.metrics(), Vec::new())?;
            let events = Events::create(&folder.events())?;
            let parts = (learner, metrics, events);
            let session = Self::new(config, folder.clone(), data, device, parts, Position::default());
            session.save_checkpoint()?;
            Ok(session)
        };
        // A run that cannot begin must not keep the folder from the next attempt.
        begin().inspect_err(|_| folder.clear())
    }

    /// Goes on with the run in `folder` from its checkpoint.
    ///
    /// # Errors
    /// A checkpoint that is missing, damaged or of another run; those of the device and the disk.
    pub(super) fn resume(config: Config, folder: RunFolder, data: &'a Dataset, device: &'a Device<B>) -> Result<Self> {
        let path = folder.checkpoint();
        if !path.exists() {
            return Err(
                Failure::new(format!("{} has no checkpoint to go on from", folder.path().display()))
                    .fix("start a new run without --resume"),
            );
        }
        let checkpoint = Checkpoint::load(&path)?;
        let bad = |what: &str| {
            Failure::new(format!("cannot go on from {}: {what}", path.display()))
                .fix("start a new run without --resume")
        };
        let record: Record = serde_json::from_value(checkpoint.config.clone())
            .map_err(|e| bad(&format!("its record is damaged ({e})")))?;
        let disagreements = settings::disagreements(&record.config, &config);
        if !disagreements.is_empty() {
            return Err(bad(&disagreements.join("; ")).fix("restore config.json, or start a new run without --resume"));
        }
        let mut learner = Learner::new(&config, data, device)?;
        checkpoint.restore(&*learner.model, &mut *learner.optimizer)?;
        config.save(&folder.config())?;
        let metrics = Metrics::resume(&folder.metrics(), checkpoint.step)?;
        let events = Events::resume(&folder.events(), checkpoint.step)?;
        let parts = (learner, metrics, events);
        let session = Self::new(config, folder, data, device, parts, record.position);
        if session.step() != checkpoint.step || record.position.batch >= session.learner.batches() {
            return Err(bad("its number of steps does not fit its place in the data"));
        }
        Ok(session)
    }

    fn new(
        config: Config,
        folder: RunFolder,
        data: &'a Dataset,
        device: &'a Device<B>,
        (learner, metrics, events): (Learner<'a, B>, Metrics, Events),
        position: Position,
    ) -> Self {
        let per_epoch = learner.feed.len() as u64;
        let before = position.epoch as u64 * per_epoch + (position.batch * config.batch_size) as u64;
        Self {
            test: Feed::new(&data.test, &config.input, device),
            learner,
            position,
            metrics,
            events,
            progress: Progress::new(config.epochs, per_epoch * config.epochs as u64, before),
            started: Instant::now(),
            seconds_before: position.seconds,
            config,
            folder,
        }
    }

    /// Trains to the end, or until Ctrl-C.
    ///
    /// # Errors
    /// A loss that is no number; those of the device and the disk. The last checkpoint then still is there.
    pub(super) fn run(mut self, interrupt: &Interrupt) -> Result<Outcome> {
        let outcome = self.run_epochs(interrupt);
        self.progress.finish();
        outcome
    }

    fn run_epochs(&mut self, interrupt: &Interrupt) -> Result<Outcome> {
        if self.position.epoch >= self.config.epochs {
            self.progress
                .say("this run is complete; a larger number of --epochs trains on");
        } else {
            self.progress
                .say(&format!("run folder: {}", self.folder.path().display()));
        }
        while self.position.epoch < self.config.epochs {
            let whole = self.train_epoch(interrupt)?;
            if whole {
                self.finish_epoch()?;
            }
            self.save_checkpoint()
                .and_then(|()| self.save_results())
                .map_err(|e| self.resumable(e))?;
            if !whole || interrupt.asked() && self.position.epoch < self.config.epochs {
                self.progress.finish();
                note(&format!("stopped; to go on: {}", self.folder.resume_command()));
                return Ok(Outcome::Interrupted);
            }
        }
        // A kill between the last checkpoint and here would otherwise leave them out for good.
        self.save_results()?;
        self.summarise();
        Ok(Outcome::Done)
    }

    /// Trains to the end of the epoch; false when Ctrl-C came before.
    fn train_epoch(&mut self, interrupt: &Interrupt) -> Result<bool> {
        self.learner.model.train();
        let (chance, order) = self.learner.epoch(self.position.epoch);
        let batches = order
            .chunks(self.config.batch_size)
            .enumerate()
            .skip(self.position.batch);
        for (i, indices) in batches {
            let begun = Instant::now();
            self.train_step(indices, &chance)?;
            self.position.batch = i + 1;
            self.position.seconds = self.seconds_before + self.started.elapsed().as_secs_f64();
            self.progress.step(
                Step {
                    epoch: self.position.epoch + 1,
                    samples: indices.len() as u64,
                    loss: self.position.of_epoch.loss(),
                    accuracy: self.position.of_epoch.accuracy(),
                },
                begun.elapsed(),
            );
            let last = self.position.batch == self.learner.batches();
            if last
                || self
                    .position
                    .batch
                    .is_multiple_of(self.learner.batches().div_ceil(ROWS_PER_EPOCH))
            {
                let tally = std::mem::take(&mut self.position.of_row);
                self.record(Split::Train, tally.loss(), tally.accuracy())?;
            }
            if !last && interrupt.asked() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn train_step(&mut self, indices: &[u32], chance: &Epoch) -> Result<()> {
        let answers = self.learner.step(indices, chance, self.step())?;
        for tally in [&mut self.position.of_epoch, &mut self.position.of_row] {
            tally.add(answers.loss, answers.right, indices.len() as u64);
        }
        Ok(())
    }

    fn finish_epoch(&mut self) -> Result<()> {
        let result = evaluate(&self.learner.model, &self.test, self.config.classes.len())?;
        self.position.seconds = self.seconds_before + self.started.elapsed().as_secs_f64();
        self.record(Split::Test, result.loss, result.accuracy())?;
        let of_epoch = std::mem::take(&mut self.position.of_epoch);
        (self.position.epoch, self.position.batch) = (self.position.epoch + 1, 0);
        self.progress.say(&format!(
            "epoch {}/{}  train loss {:.4} accuracy {:.2} %  test loss {:.4} accuracy {:.2} %  {}",
            self.position.epoch,
            self.config.epochs,
            of_epoch.loss(),
            100.0 * of_epoch.accuracy(),
            result.loss,
            100.0 * result.accuracy(),
            clock(self.position.seconds)
        ));
        Ok(())
    }

    fn record(&mut self, split: Split, loss: f64, accuracy: f64) -> Result<()> {
        let row = Row {
            step: self.step(),
            epoch: self.position.epoch as f64 + self.position.batch as f64 / self.learner.batches() as f64,
            split,
            loss,
            accuracy,
            learning_rate: self.learner.optimizer.lr(),
            seconds: self.position.seconds,
        };
        let written = self.metrics.append(row).and_then(|()| match split {
            Split::Train => self.events.scalars(
                row.step,
                &[
                    ("loss/train", loss),
                    ("accuracy/train", accuracy),
                    ("learning_rate", row.learning_rate),
                ],
            ),
            Split::Test => self
                .events
                .scalars(row.step, &[("loss/test", loss), ("accuracy/test", accuracy)]),
        });
        written.map_err(|e| self.resumable(e))
    }

    /// A failure of the disk leaves the last checkpoint whole.
    fn resumable(&self, failure: Failure) -> Failure {
        failure.then(&format!(
            "go on from the last checkpoint: {}",
            self.folder.resume_command()
        ))
    }

    /// Leaves all that is needed to go on from here.
    fn save_checkpoint(&self) -> Result<()> {
        let record = Record {
            config: self.config.clone(),
            position: self.position,
        };
        let path = self.folder.checkpoint();
        let record =
            serde_json::to_value(record).map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
        Ok(
            Checkpoint::new(&*self.learner.model, &*self.learner.optimizer, self.step())?
                .with_config(record)
                .save(path)?,
        )
    }

    /// Leaves the model as it is now, and its curves.
    fn save_results(&self) -> Result<()> {
        self.learner.model.save(self.folder.model())?;
        let path = self.folder.curves();
        let title = format!("{}, {}", self.config.dataset, name(self.config.model));
        let png = curves::draw(&title, self.metrics.rows())
            .map_err(|e| Failure::new(format!("cannot draw {}: {e}", path.display())))?;
        atomic::write(&path, &png)
    }

    fn summarise(&self) {
        let folder = self.folder.path().display();
        if let Some(last) = self.metrics.rows().iter().rfind(|row| row.split == Split::Test) {
            self.progress.say(&format!(
                "test accuracy {:.2} % after {}",
                100.0 * last.accuracy,
                clock(self.position.seconds)
            ));
        }
        self.progress.say(&format!(
            "{folder} holds the model, its checkpoint and its curves; now try:\n  polygrad eval {folder}\n  polygrad predict {folder} IMAGE.png"
        ));
    }

    /// Optimizer steps taken so far.
    fn step(&self) -> u64 {
        (self.position.epoch * self.learner.batches() + self.position.batch) as u64
    }
}
