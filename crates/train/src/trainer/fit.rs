//! From epoch to epoch.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::time::Instant;

use polygrad_core::{Error, ErrorKind, Result};
use polygrad_data::DataLoader;
use polygrad_nn::Module;
use polygrad_nn::optim::{GradScaler, Schedule, clip_grad_norm};
use polygrad_nn::watch::locate;
use polygrad_tensor::{Gradients, no_grad};

use super::accumulated::Accumulated;
use super::config::Length;
use super::event::{Figures, Seen};
use super::{Control, Ended, Event, Progress, Step, Summary, Trainer};
use crate::{Row, Split};

/// Steps between two rows where nobody knows how long an epoch is.
const ROW: u64 = 100;

/// Rows in an epoch of known length.
const ROWS_PER_EPOCH: u64 = 10;

/// Steps in a row that are left out in f16 before training ends. From 65,536 on a scale that is halved so often is of no use.
const MOST_SKIPPED: u64 = 32;

/// A loss that is infinite or no number, from which nothing is learnt: the [source](std::error::Error::source) of the error that it ends training
/// with. In f16 such a step is left out, and only too many in a row end it: see [`TrainerConfig::autocast`](super::TrainerConfig::autocast).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NonFiniteLoss {
    /// The loss.
    pub loss: f64,
    /// The step that was not taken, counted from 1.
    pub step: u64,
    /// Its epoch, counted from 1.
    pub epoch: u64,
}

impl std::fmt::Display for NonFiniteLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { loss, step, epoch } = self;
        write!(f, "the loss is {loss} at step {step}, in epoch {epoch}")
    }
}

impl std::error::Error for NonFiniteLoss {}

impl<M: Module + 'static, T: Send + 'static> Trainer<M, T> {
    /// Trains to the end, or goes on to it from where the run stands; the model is in evaluation mode afterwards. The loader is set to where the
    /// run stands, if it is resumed.
    ///
    /// # Errors
    /// A loss that is not finite, or in f16 too many of them in a row, naming the step; those of data, model, optimizer, callbacks, device and disk. The last checkpoint then still is
    /// there.
    pub fn fit(&mut self, train: &DataLoader<T>, validation: Option<&DataLoader<T>>) -> Result<Summary> {
        let fitted = self.try_fit(train, validation);
        if let Err(error) = &fitted {
            if let Some(ranks) = self.ranks.as_ref().filter(|_| error.kind() != ErrorKind::Communication) {
                ranks.communicator().abort(&error.to_string());
            }
            // The error that ended training is the one to report.
            let _ = self.tell(train, Event::Failed);
        }
        fitted
    }

    fn try_fit(&mut self, train: &DataLoader<T>, validation: Option<&DataLoader<T>>) -> Result<Summary> {
        self.unfinished = false;
        let notices = self.begin(train)?;
        self.clock = Some(Instant::now());
        self.running = train.state().epoch + 1;
        let mut stop = self.tell(train, Event::Begin)?;
        for notice in &notices {
            stop |= self.tell(train, Event::Notice(notice))?;
        }
        let ended = self.train(train, validation, stop)?;
        self.model.eval();
        if let Some(run) = &self.config.run {
            run.check()?;
            // A kill between the last checkpoint and here would otherwise leave it out for good.
            self.save_model()?;
            // What is said of the folder is so.
            run.check()?;
        }
        self.tell(train, Event::End)?;
        if self.config.restore_best && ended != Ended::Stopped {
            self.restore_best()?;
        }
        (self.before, self.clock) = ((self.step, self.seconds()), None);
        let evaluation = self.history().iter().rfind(|row| row.split == Split::Validation);
        Ok(Summary {
            ended,
            steps: self.step,
            epochs: train.state().epoch,
            evaluation: evaluation.cloned(),
            best: self.best,
            seconds: self.before.1,
        })
    }

    fn train(&mut self, train: &DataLoader<T>, validation: Option<&DataLoader<T>>, stop: bool) -> Result<Ended> {
        let mut stop = stop;
        loop {
            let ended = self.ended(train, stop);
            let advanced = match ended {
                Some(_) => self.settle().map(|()| stop),
                None => self.advance(train, validation),
            };
            stop = match (advanced, ended) {
                (Ok(_), Some(ended)) => return Ok(ended),
                (Ok(stop), None) => stop,
                (Err(error), _) => self.recover(train, error)?,
            };
        }
    }

    /// How training ends here, if it does.
    fn ended(&self, train: &DataLoader<T>, stop: bool) -> Option<Ended> {
        if self.unfinished {
            return None;
        }
        if self.is_done(train) {
            return Some(Ended::Done);
        }
        if self.config.patience.is_some_and(|patience| self.since_best >= patience) {
            return Some(Ended::EarlyStopping);
        }
        stop.then_some(Ended::Stopped)
    }

    /// Trains to the end of the epoch or until somebody asks to stop: whether somebody does.
    fn advance(&mut self, train: &DataLoader<T>, validation: Option<&DataLoader<T>>) -> Result<bool> {
        let mut stop = false;
        if !self.unfinished {
            let over;
            (over, stop) = self.train_epoch(train)?;
            self.unfinished = over || self.is_done(train);
        }
        if self.unfinished {
            stop |= self.finish_epoch(train, validation)?;
            self.unfinished = false;
        }
        self.save(train)?;
        Ok(stop)
    }

    fn is_done(&self, train: &DataLoader<T>) -> bool {
        match self.config.length {
            Length::Epochs(epochs) => train.state().epoch >= epochs,
            Length::Steps(steps) => self.step >= steps,
        }
    }

    /// Trains to the end of the epoch or of the steps, or until somebody asks to stop: whether the epoch is over, and whether somebody does.
    fn train_epoch(&mut self, train: &DataLoader<T>) -> Result<(bool, bool)> {
        self.model.train();
        self.running = train.state().epoch + 1;
        let log_every = self.log_every(train);
        let mut sum = Accumulated::default();
        // One that was left behind by an error.
        self.overflow = None;
        let mut stop = false;
        let mut before = train.state().position;
        let mut batches = train.iter();
        loop {
            let begun = Instant::now();
            let batch = batches.next().transpose()?;
            self.loading += begun.elapsed();
            let over = batch.is_none();
            if let Some(batch) = batch {
                let examples = train.state().position - before;
                before += examples;
                let own = train.share(examples as usize) as u64;
                let weight = sum.enter(examples);
                let is_full = sum.batches() == self.config.accumulate;
                if let Some(ranks) = &mut self.ranks {
                    ranks.enter(own, examples, weight, is_full);
                }
                let (step, loss, gradients) = self.learn(&batch)?;
                match &mut self.ranks {
                    Some(ranks) if own > 0 => ranks.pending.push(step),
                    Some(_) => {}
                    None => self.take_in(loss, examples, &[step])?,
                }
                self.examples += examples;
                match self.ranks {
                    // They add them up together.
                    Some(_) => sum.set(gradients),
                    None => sum.add(gradients, weight)?,
                }
                self.batch = Some(batch);
            }
            let is_full = over || sum.batches() == self.config.accumulate;
            let has_stepped = is_full && !sum.is_empty();
            if has_stepped {
                let mut sum = std::mem::take(&mut sum);
                if self.ranks.is_some() {
                    let (gradients, loss) = self.landed(&sum)?;
                    let steps = self.ranks.as_mut().map(|ranks| std::mem::take(&mut ranks.pending));
                    self.take_in(loss, sum.examples(), &steps.unwrap_or_default())?;
                    sum.set(gradients);
                }
                self.gradients = Some(self.update(sum)?);
                self.row.count_step();
            }
            if has_stepped || over {
                self.committed = train.state();
            }
            self.training += begun.elapsed();
            if has_stepped {
                stop |= self.tell(train, Event::Step)?;
                (self.batch, self.gradients) = (None, None);
            }
            if self.row.steps() == log_every || over && self.row.steps() > 0 {
                stop |= self.add_train_row(train, over)?;
            }
            if over {
                return Ok((true, stop));
            }
            if has_stepped {
                if stop || matches!(self.config.length, Length::Steps(steps) if self.step >= steps) {
                    return Ok((false, stop));
                }
                let every = self.config.checkpoint_every;
                if every.is_some_and(|every| self.step.is_multiple_of(every)) {
                    self.save(train)?;
                }
            }
        }
    }

    /// Takes down the mean loss of so many examples, and what the metrics compare; nothing of a step that is left out.
    fn take_in(&mut self, loss: f64, examples: u64, steps: &[Step]) -> Result<()> {
        if !loss.is_finite() {
            return Ok(());
        }
        for tally in [&mut self.epoch, &mut self.row] {
            tally.add_loss(loss, examples);
            no_grad(|| steps.iter().try_for_each(|step| tally.add_outputs(step)))?;
        }
        Ok(())
    }

    /// One step of the optimizer on a batch, outside of all epochs and files, with the learning rate, clipping and moving average that the trainer
    /// has; gives the loss before it. In f16 one that is not finite is that of a step that was left out.
    ///
    /// # Errors
    /// Those of [`Trainer::fit`] but for files.
    pub fn step(&mut self, batch: &T) -> Result<f64> {
        self.overflow = None;
        let mut sum = Accumulated::default();
        let size = self
            .ranks
            .as_ref()
            .map_or(1, |ranks| ranks.communicator().size() as u64);
        let weight = sum.enter(size);
        if let Some(ranks) = &mut self.ranks {
            ranks.enter(1, size, weight, true);
        }
        let (_, mut loss, mut gradients) = self.learn(batch)?;
        if self.ranks.is_some() {
            (gradients, loss) = self.landed(&sum)?;
        }
        sum.set(gradients);
        self.update(sum)?;
        Ok(loss)
    }

    /// The sum of the gradients of all ranks, and the mean loss of this step.
    fn landed(&mut self, sum: &Accumulated) -> Result<(Gradients, f64)> {
        let Some(ranks) = &mut self.ranks else {
            return Err(Error::invalid("there are no other ranks"));
        };
        if sum.batches() < self.config.accumulate {
            ranks.parallel.flush()?;
        }
        let (gradients, loss) = ranks.landed()?;
        let scale = self.scaler.as_ref().map_or(1.0, GradScaler::get_scale);
        Ok((gradients, self.finite(loss * sum.unit() / scale)?))
    }

    /// What the loss function gives for a batch, its loss, and the gradients.
    fn learn(&mut self, batch: &T) -> Result<(Step, f64, Gradients)> {
        let sync = self.ranks.as_ref().map(|ranks| ranks.sync());
        let scaler = self.scaler.as_ref();
        let computed = self.stepper.backward(&self.model, &self.loss, batch, scaler, sync);
        let (step, gradients) = computed.map_err(|e| locate(&*self.model, e))?;
        if self.ranks.is_some() {
            // That of all ranks comes with their gradients.
            return Ok((step, f64::NAN, gradients));
        }
        let loss = self.finite(step.loss.item()?)?;
        Ok((step, loss, gradients))
    }

    /// A loss from which something is learnt; in f16 also one that is not finite, whose step is then left out.
    fn finite(&mut self, loss: f64) -> Result<f64> {
        if loss.is_finite() {
            return Ok(loss);
        }
        if self.scaler.is_some() {
            self.overflow = Some(loss);
            return Ok(loss);
        }
        let found = self.non_finite(loss);
        Err(diverged(found.to_string()).with_source(found))
    }

    fn non_finite(&self, loss: f64) -> NonFiniteLoss {
        NonFiniteLoss {
            loss,
            step: self.step + 1,
            epoch: self.running,
        }
    }

    /// One step of the optimizer by the mean of gradients, which it gives back; in f16 none where these or the loss are not finite.
    fn update(&mut self, sum: Accumulated) -> Result<Gradients> {
        let mut gradients = sum.mean()?;
        let overflow = self.overflow.take();
        let is_finite = match &mut self.scaler {
            None => true,
            Some(scaler) if overflow.is_some() => {
                scaler.skip();
                false
            }
            Some(scaler) => scaler.unscale(&mut gradients)?,
        };
        self.skipped = if is_finite { 0 } else { self.skipped + 1 };
        if self.skipped == MOST_SKIPPED {
            return Err(self.skipped_too_often(overflow));
        }
        if let Some(max_norm) = self.config.max_norm.filter(|_| is_finite) {
            clip_grad_norm(&mut gradients, max_norm)?;
        }
        let optimizer = self.stepper.optimizer_mut();
        if let Some(schedule) = &self.config.schedule {
            schedule.apply(optimizer, self.step)?;
        }
        if is_finite {
            optimizer.step(&gradients)?;
        }
        if let Some(scaler) = &mut self.scaler {
            scaler.update()?;
        }
        if let Some(ema) = &mut self.ema {
            ema.update()?;
        }
        self.step += 1;
        Ok(gradients)
    }

    /// Why training ends after so many steps that were left out, the last one for this loss or for its gradients.
    #[cold]
    fn skipped_too_often(&self, overflow: Option<f64>) -> Error {
        let before = MOST_SKIPPED - 1;
        match overflow.map(|loss| self.non_finite(loss)) {
            Some(found) => diverged(format!("{found}; {before} steps before it were left out")).with_source(found),
            None => {
                let (step, epoch) = (self.step + 1, self.running);
                diverged(format!(
                    "the gradients are not finite at step {step}, in epoch {epoch}; {before} steps before it were left out"
                ))
            }
        }
    }

    fn log_every(&self, train: &DataLoader<T>) -> u64 {
        let steps = self
            .steps_per_epoch(train)
            .map(|steps| steps.div_ceil(ROWS_PER_EPOCH).max(1));
        self.config.log_every.or(steps).unwrap_or(ROW)
    }

    fn steps_per_epoch(&self, train: &DataLoader<T>) -> Option<u64> {
        Some((train.batches()? as u64).div_ceil(self.config.accumulate))
    }

    /// Takes down what was measured on training batches since the last row.
    fn add_train_row(&mut self, train: &DataLoader<T>, epoch_is_over: bool) -> Result<bool> {
        let part = match (train.examples(), epoch_is_over) {
            (Some(examples), false) => train.state().position as f64 / examples.max(1) as f64,
            (None, false) => 0.0,
            (_, true) => 1.0,
        };
        let values = match &self.ranks {
            Some(ranks) => ranks.merged(&self.row)?.values(),
            None => self.row.values(),
        };
        let row = self.row_of(Split::Train, (self.running - 1) as f64 + part, self.row.loss(), values);
        self.row.reset();
        self.add_row(train, row)
    }

    fn row_of(&self, split: Split, epoch: f64, loss: f64, metrics: Vec<f64>) -> Row {
        Row {
            step: self.step,
            epoch,
            split,
            loss,
            metrics,
            learning_rate: self.optimizer().lr(),
            seconds: self.seconds(),
        }
    }

    fn add_row(&mut self, train: &DataLoader<T>, row: Row) -> Result<bool> {
        self.append(&row)?;
        self.tell(train, Event::Row(&row))
    }

    /// Evaluates, if there is something to evaluate on, and begins new sums.
    fn finish_epoch(&mut self, train: &DataLoader<T>, validation: Option<&DataLoader<T>>) -> Result<bool> {
        let mut stop = false;
        let mut row = None;
        if let Some(validation) = validation {
            let begun = Instant::now();
            let (loss, metrics) = self.evaluate(validation)?;
            self.evaluation += begun.elapsed();
            let state = train.state();
            let part = train
                .examples()
                .map_or(0.0, |n| state.position as f64 / n.max(1) as f64);
            let found = self.row_of(Split::Validation, state.epoch as f64 + part, loss, metrics);
            stop |= self.add_row(train, found.clone())?;
            self.judge(&found)?;
            row = Some(found);
        }
        stop |= self.tell(train, Event::Epoch(row.as_ref()))?;
        self.epoch.reset();
        Ok(stop)
    }

    /// Whether an evaluation is the best so far.
    fn judge(&mut self, row: &Row) -> Result<()> {
        let monitor = self.config.monitor.as_deref().unwrap_or("loss");
        let place = self.names.iter().position(|name| name == monitor);
        let (figure, higher) = match place {
            Some(at) => (row.metrics[at], self.config.metrics[at].higher_is_better()),
            None => (row.loss, false),
        };
        let is_better = match self.best {
            _ if figure.is_nan() => false,
            None => true,
            Some(best) if higher => figure > best,
            Some(best) => figure < best,
        };
        if !is_better {
            self.since_best += 1;
            return Ok(());
        }
        (self.best, self.since_best) = (Some(figure), 0);
        self.save_best()
    }

    /// Seconds that the run has taken.
    pub(super) fn seconds(&self) -> f64 {
        self.before.1 + self.clock.map_or(0.0, |clock| clock.elapsed().as_secs_f64())
    }

    /// Tells the callbacks; whether one of them, or the flag, asks to stop.
    pub(super) fn tell(&mut self, train: &DataLoader<T>, event: Event<'_>) -> Result<bool> {
        let mut callbacks = std::mem::take(&mut self.config.callbacks);
        let progress = self.progress(train);
        let mut stop = false;
        let told = callbacks.iter_mut().try_for_each(|callback| {
            stop |= callback.on_event(event, &progress)? == Control::Stop;
            Ok(())
        });
        self.config.callbacks = callbacks;
        told?;
        let flag = self.config.stop.as_ref();
        stop |= flag.is_some_and(|flag| flag.load(Ordering::Relaxed));
        Ok(match &mut self.ranks {
            Some(ranks) => ranks.stops(stop),
            None => stop,
        })
    }

    fn progress(&self, train: &DataLoader<T>) -> Progress<'_> {
        let (epochs, steps) = match self.config.length {
            Length::Epochs(epochs) => (Some(epochs), self.steps_per_epoch(train).map(|steps| steps * epochs)),
            Length::Steps(steps) => (None, Some(steps)),
        };
        let elapsed = self.seconds() - self.before.1;
        let done = self.step - self.before.0;
        let left = steps.filter(|_| done > 0).map(|steps| steps.saturating_sub(self.step));
        Progress {
            epoch: self.running,
            epochs,
            step: self.step,
            steps,
            examples: self.examples,
            unit: "examples",
            training_seconds: self.training.as_secs_f64(),
            loading_seconds: self.loading.as_secs_f64(),
            evaluation_seconds: self.evaluation.as_secs_f64(),
            seconds: self.seconds(),
            seconds_left: left.map(|left| elapsed / done as f64 * left as f64),
            learning_rate: self.optimizer().lr(),
            metrics: &self.names,
            validation: &self.config.validation,
            run: self.config.run.as_ref().map(|run| run.path()),
            history: self.history(),
            figures: &self.epoch,
            seen: Seen {
                module: Some(&*self.model),
                model: Some(&*self.model),
                batch: self.batch.as_ref().map(|batch| batch as &dyn Any),
                gradients: self.gradients.as_ref(),
            },
        }
    }
}

#[cold]
fn diverged(message: String) -> Error {
    Error::invalid(message).with_hint("a smaller learning rate may help, or clipping the norm of the gradients")
}
