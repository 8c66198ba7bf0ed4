//! The training loop.

use std::rc::Rc;
use std::time::Instant;

use polygrad::nn::{Checkpoint, Module};
use polygrad::{Device, manual_seed};

use super::learner::Learner;
use super::position::{Position, Record};
use super::state::{State, unfit};
use crate::data::files::Dataset;
use crate::evaluation::evaluate;
use crate::failure::{Failure, Result, Shown};
use crate::feed::{Epoch, Feed};
use crate::interrupt::Interrupt;
use crate::outcome::Outcome;
use crate::progress::{Progress, Step, clock, note};
use crate::run::config::{Config, name};
use crate::run::events::Events;
use crate::run::metrics::{Mark, Metrics, Row, Split};
use crate::run::{Claim, RunFolder, atomic, curves};

/// A row of the metrics is a tenth of an epoch.
const ROWS_PER_EPOCH: usize = 10;

/// A run in the making.
pub(super) struct Session<'a> {
    config: Config,
    claim: Claim,
    learner: Learner<'a>,
    test: Feed<'a>,
    position: Position,
    metrics: Metrics,
    events: Events,
    progress: Progress,
    started: Instant,
    /// What `position.seconds` was when this process took over.
    seconds_before: f64,
}

impl<'a> Session<'a> {
    /// Begins a run in the folder of `claim`, and leaves its first checkpoint there.
    ///
    /// # Errors
    /// Those of the device and the disk; images that do not suit the model.
    pub(super) fn start(config: Config, claim: Claim, data: &'a Dataset, device: &'a Device) -> Result<Self> {
        manual_seed(config.seed);
        let learner = Learner::new(&config, data, device)?;
        let position = Position::default();
        // The checkpoint makes it a run, since all else can be made from it: a kill before it leaves nothing, one after it a run to go on with.
        let begin = || {
            save_checkpoint(&claim, &config, &learner, position, Mark::none())?;
            config.save(&claim.config())?;
            Ok((
                Metrics::create(&claim.metrics(), Vec::new())?,
                Events::create(&claim.events())?,
            ))
        };
        // A run that cannot begin must not keep the folder from the next attempt.
        let (metrics, events) = begin().inspect_err(|_: &Failure| claim.clear())?;
        Ok(Self::new(
            config,
            claim,
            data,
            device,
            (learner, metrics, events),
            position,
        ))
    }

    /// Goes on with the run in the folder of `claim` from its checkpoint.
    ///
    /// # Errors
    /// A checkpoint that does not fit, metrics of another run; those of the device and the disk.
    pub(super) fn resume(
        config: Config,
        claim: Claim,
        State { checkpoint, record }: State,
        data: &'a Dataset,
        device: &'a Device,
    ) -> Result<Self> {
        let mut learner = Learner::new(&config, data, device)?;
        let model = Rc::clone(&learner.model);
        checkpoint.restore(&*model, learner.optimizer_mut())?;
        let step = checkpoint.step;
        let Position { epoch, batch, .. } = record.position;
        // In this order, so that what is damaged is not multiplied.
        if epoch > config.epochs || batch >= learner.batches() || step_at(&learner, record.position) != step {
            return Err(unfit(&claim, "its number of steps does not fit its place in the data"));
        }
        let metrics = Metrics::resume(&claim.metrics(), step, record.metrics.as_ref())?;
        let events = Events::resume(&claim.events(), step)?;
        config.save(&claim.config())?;
        Ok(Self::new(
            config,
            claim,
            data,
            device,
            (learner, metrics, events),
            record.position,
        ))
    }

    fn new(
        config: Config,
        claim: Claim,
        data: &'a Dataset,
        device: &'a Device,
        (learner, metrics, events): (Learner<'a>, Metrics, Events),
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
            claim,
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
            self.progress.say(&format!("run folder: {}", self.claim.path().shown()));
        }
        while self.position.epoch < self.config.epochs {
            let whole = self.train_epoch(interrupt)?;
            if whole {
                self.finish_epoch()?;
            }
            self.save()?;
            if !whole || interrupt.asked() && self.position.epoch < self.config.epochs {
                self.progress.finish();
                note(&format!("stopped; to go on: {}", self.claim.resume_command()));
                return Ok(Outcome::Interrupted);
            }
        }
        // A kill between the last checkpoint and here would otherwise leave them out for good.
        self.claim.check()?;
        self.save_results()?;
        // What is said of the folder is so.
        self.claim.check()?;
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
        self.claim.check()?;
        let row = Row {
            step: self.step(),
            epoch: self.position.epoch as f64 + self.position.batch as f64 / self.learner.batches() as f64,
            split,
            loss,
            accuracy,
            learning_rate: self.learner.optimizer().lr(),
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

    /// A failure of the disk leaves the last checkpoint whole, unless its folder is what failed.
    fn resumable(&self, failure: Failure) -> Failure {
        match self.claim.check() {
            Err(lost) => lost,
            Ok(()) => failure.then(&format!(
                "go on from the last checkpoint: {}",
                self.claim.resume_command()
            )),
        }
    }

    /// Leaves all that is needed to go on from here, and the results so far.
    fn save(&self) -> Result<()> {
        self.claim.check()?;
        let checkpoint = || {
            let mark = self.metrics.mark()?;
            save_checkpoint(&self.claim, &self.config, &self.learner, self.position, mark)
        };
        checkpoint()
            .and_then(|()| self.save_results())
            .map_err(|e| self.resumable(e))
    }

    /// Leaves the model as it is now, and its curves.
    fn save_results(&self) -> Result<()> {
        self.learner.model.save(self.claim.model())?;
        let path = self.claim.curves();
        let title = format!("{}, {}", self.config.dataset, name(self.config.model));
        let png = curves::draw(&title, self.metrics.rows())
            .map_err(|e| Failure::new(format!("cannot draw {}: {e}", path.shown())))?;
        atomic::write(&path, &png)
    }

    fn summarise(&self) {
        let folder = self.claim.path().shown();
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
        step_at(&self.learner, self.position)
    }
}

/// Optimizer steps taken on the way to `position`.
fn step_at(learner: &Learner<'_>, position: Position) -> u64 {
    (position.epoch * learner.batches() + position.batch) as u64
}

/// Writes the checkpoint of a run that stands at `position`.
fn save_checkpoint(
    folder: &RunFolder,
    config: &Config,
    learner: &Learner<'_>,
    position: Position,
    metrics: Mark,
) -> Result<()> {
    let path = folder.checkpoint();
    let record = Record {
        config: config.clone(),
        position,
        metrics: Some(metrics),
    };
    let record =
        serde_json::to_value(record).map_err(|e| Failure::new(format!("cannot write {}: {e}", path.shown())))?;
    Ok(
        Checkpoint::new(&*learner.model, learner.optimizer(), step_at(learner, position))?
            .with_config(record)
            .save(path)?,
    )
}
