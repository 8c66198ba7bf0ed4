//! A model that learns from batches: gradients, optimizer steps, figures.

use std::rc::Rc;
use std::time::Instant;

use polygrad_core::{Error, Result};
use polygrad_data::{DataLoader, LoaderState};
use polygrad_nn::optim::{Ema, GradScaler, Schedule, clip_grad_norm};
use polygrad_nn::watch::locate;
use polygrad_nn::{Module, StateDict};
use polygrad_tensor::{Gradients, no_grad};

use super::accumulated::Accumulated;
use super::config::TrainerOptions;
use super::exchange::{Exchange, Shared};
use super::step::{Loss, Stepper};
use super::tally::Tally;
use crate::driver::{Figures, Length};

/// Consecutive skipped steps in f16 after which training ends: a scale of 65,536 is useless after that many halvings.
const MOST_SKIPPED: u64 = 32;

/// A loss that is infinite or NaN, from which nothing can be learned: the [source](std::error::Error::source) of the
/// error that ends training. In f16 such a step is skipped, and only too many in a row end training: see
/// [`TrainerConfig::autocast`](crate::TrainerConfig::autocast).
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

/// The state of a trainer that persists between calls of `fit`.
pub(super) struct Learning<M: Module, T> {
    pub(super) options: TrainerOptions,
    pub(super) length: Length,
    pub(super) model: Rc<M>,
    pub(super) stepper: Stepper<M, T>,
    loss: Loss<M, T>,
    pub(super) exchange: Box<dyn Exchange>,
    pub(super) ema: Option<Ema>,
    pub(super) scaler: Option<GradScaler>,
    /// Figures of the running epoch, and since the last row.
    pub(super) epoch: Tally,
    pub(super) row: Tally,
    pub(super) steps: u64,
    /// The running epoch, counted from 1.
    pub(super) running: u64,
    pub(super) since_best: u64,
    /// The best model, if it is wanted and not saved to a file.
    pub(super) best: Option<StateDict>,
    pub(super) examples: u64,
    /// The loader's state after the last step.
    pub(super) committed: LoaderState,
    /// A loss of the running step that is not finite, in f16, where this is not an error; and the number of consecutive
    /// skipped steps.
    overflow: Option<f64>,
    skipped: u64,
    /// The parts of a step that callbacks see: its last batch, and its gradients.
    pub(super) batch: Option<T>,
    pub(super) gradients: Option<Gradients>,
}

/// What a step learned about the loader.
pub(super) struct Taken {
    /// Whether there are no more batches.
    pub(super) is_exhausted: bool,
    /// Seconds spent waiting for batches.
    pub(super) loading_seconds: f64,
}

impl<M: Module + 'static, T: 'static> Learning<M, T> {
    pub(super) fn new(
        options: TrainerOptions,
        length: Length,
        model: Rc<M>,
        stepper: Stepper<M, T>,
        loss: Loss<M, T>,
        exchange: Box<dyn Exchange>,
    ) -> Result<Self> {
        let tally = Tally::new(options.metrics.clone());
        Ok(Self {
            ema: options.ema.map(|ema| ema.build(&*model)).transpose()?,
            scaler: options.grad_scaler(),
            options,
            length,
            model,
            stepper,
            loss,
            exchange,
            row: tally.clone(),
            epoch: tally,
            steps: 0,
            running: 1,
            since_best: 0,
            best: None,
            examples: 0,
            committed: LoaderState::default(),
            overflow: None,
            skipped: 0,
            batch: None,
            gradients: None,
        })
    }
}

impl<M: Module + 'static, T: Send + 'static> Learning<M, T> {
    /// Begins or continues an epoch.
    pub(super) fn begin_epoch(&mut self, train: &DataLoader<T>) {
        self.model.train();
        self.running = train.state().epoch + 1;
        // An error may have left one behind.
        self.overflow = None;
    }

    /// One optimizer step with the next batches, as many as it takes; none if there are no more.
    pub(super) fn advance(
        &mut self,
        train: &DataLoader<T>,
        batches: &mut impl Iterator<Item = Result<T>>,
    ) -> Result<Taken> {
        let mut sum = Accumulated::default();
        let mut taken = Taken {
            is_exhausted: false,
            loading_seconds: 0.0,
        };
        while !taken.is_exhausted && sum.batches() < self.options.accumulate {
            let before = train.state().position;
            let begun = Instant::now();
            let batch = batches.next().transpose()?;
            taken.loading_seconds += begun.elapsed().as_secs_f64();
            let Some(batch) = batch else {
                taken.is_exhausted = true;
                break;
            };
            let examples = train.state().position - before;
            let own = train.share(examples as usize) as u64;
            if let Some(shared) = self.learn(&batch, own, examples, &mut sum)? {
                self.take_in(shared, examples)?;
            }
            self.examples += examples;
            self.batch = Some(batch);
        }
        if !sum.is_empty() {
            if let Some(shared) = self.land(&mut sum)? {
                self.take_in(shared, sum.examples())?;
            }
            self.gradients = Some(self.update(sum)?);
            self.row.count_step();
        }
        self.committed = train.state();
        Ok(taken)
    }

    /// One optimizer step on one batch; returns the loss before it.
    pub(super) fn step(&mut self, batch: &T) -> Result<f64> {
        self.overflow = None;
        let mut sum = Accumulated::default();
        let size = self.exchange.communicator().map_or(1, |group| group.size() as u64);
        let (mut loss, _) = self.learn(batch, 1, size, &mut sum)?.unwrap_or_default();
        if let Some((landed, _)) = self.land(&mut sum)? {
            loss = landed;
        }
        self.update(sum)?;
        Ok(loss)
    }

    /// Adds the gradients of a batch, of which this process has `own` of `examples`, to a sum. Returns its loss and
    /// outputs, unless these are combined with those of other processes later.
    fn learn(&mut self, batch: &T, own: u64, examples: u64, sum: &mut Accumulated) -> Result<Option<Shared>> {
        let weight = sum.enter(examples);
        let is_full = sum.batches() == self.options.accumulate;
        self.exchange.enter(own, examples, weight, is_full);
        let (sync, scaler) = (self.exchange.sync(), self.scaler.as_ref());
        let computed = self.stepper.backward(&self.model, &self.loss, batch, scaler, sync);
        let (step, gradients) = computed.map_err(|e| locate(&*self.model, e))?;
        match self.exchange.add(sum, step, gradients, weight)? {
            Some((loss, steps)) => Ok(Some((self.finite(loss)?, steps))),
            None => Ok(None),
        }
    }

    /// Combines the gradients of all processes; returns the mean loss of the step and this process's outputs, if they
    /// were not available before.
    fn land(&mut self, sum: &mut Accumulated) -> Result<Option<Shared>> {
        let is_full = sum.batches() >= self.options.accumulate;
        let Some((loss, steps)) = self.exchange.land(sum, is_full)? else {
            return Ok(None);
        };
        let scale = self.scaler.as_ref().map_or(1.0, GradScaler::get_scale);
        Ok(Some((self.finite(loss * sum.unit() / scale)?, steps)))
    }

    /// Adds the mean loss of `examples` examples, and the outputs for the metrics, to the figures. Does nothing for a
    /// skipped step.
    fn take_in(&mut self, (loss, steps): Shared, examples: u64) -> Result<()> {
        if !loss.is_finite() {
            return Ok(());
        }
        for tally in [&mut self.epoch, &mut self.row] {
            tally.add_loss(loss, examples);
            no_grad(|| steps.iter().try_for_each(|step| tally.add_outputs(step)))?;
        }
        Ok(())
    }

    /// Checks a loss: one that is not finite is an error or, in f16, makes the step be skipped.
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
            step: self.steps + 1,
            epoch: self.running,
        }
    }

    /// One optimizer step with the mean gradients, which are returned; in f16 skipped if these or the loss are not
    /// finite.
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
        if let Some(max_norm) = self.options.max_norm.filter(|_| is_finite) {
            clip_grad_norm(&mut gradients, max_norm)?;
        }
        let optimizer = self.stepper.optimizer_mut();
        if let Some(schedule) = &self.options.schedule {
            schedule.apply(optimizer, self.steps)?;
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
        self.steps += 1;
        Ok(gradients)
    }

    /// The error after too many skipped steps; the last one was skipped for this loss or for its gradients.
    #[cold]
    fn skipped_too_often(&self, overflow: Option<f64>) -> Error {
        let before = MOST_SKIPPED - 1;
        match overflow.map(|loss| self.non_finite(loss)) {
            Some(found) => diverged(format!("{found}; {before} steps before it were left out")).with_source(found),
            None => {
                let (step, epoch) = (self.steps + 1, self.running);
                diverged(format!(
                    "the gradients are not finite at step {step}, in epoch {epoch}; {before} steps before it were left out"
                ))
            }
        }
    }

    /// Loss and metrics over one epoch of data, from its beginning.
    pub(super) fn evaluate(&self, data: &DataLoader<T>) -> Result<(f64, Vec<f64>)> {
        let state = LoaderState {
            position: 0,
            ..data.state()
        };
        data.set_state(state);
        let evaluated = self.averaged(|| no_grad(|| self.evaluated(data)))?;
        data.set_state(state);
        evaluated
    }

    fn evaluated(&self, data: &DataLoader<T>) -> Result<(f64, Vec<f64>)> {
        self.exchange.settle(&*self.model)?;
        self.take_part(data, false)?;
        self.model.eval();
        let mut tally = Tally::new(self.options.metrics.clone());
        let mut before = 0;
        let mut batches = data.iter();
        while let Some(batch) = batches.next().transpose()? {
            let position = data.state().position;
            let step = (self.loss)(&self.model, &batch).map_err(|e| locate(&*self.model, e))?;
            tally.add_loss(step.loss.item()?, data.share((position - before) as usize) as u64);
            tally.add_outputs(&step)?;
            before = position;
        }
        let (loss, examples) = tally.sums();
        let [loss, examples] = self.exchange.sums([loss, examples as f64])?;
        Ok((loss / examples, self.exchange.merged(&tally)?.values()))
    }

    /// Sets the data to this process's part.
    pub(super) fn take_part(&self, data: &DataLoader<T>, fills: bool) -> Result<()> {
        match self.exchange.communicator() {
            Some(group) => data.set_shard(group.rank(), group.size(), fills),
            None => Ok(()),
        }
    }

    /// Runs `f` while the model has its moving average, if there is one.
    pub(super) fn averaged<R>(&self, f: impl FnOnce() -> R) -> Result<R> {
        match &self.ema {
            Some(ema) if ema.n_averaged() > 0 => ema.with_averaged(f),
            _ => Ok(f()),
        }
    }
}

#[cold]
fn diverged(message: String) -> Error {
    Error::invalid(message).with_hint(
        "a smaller learning rate may help, or clipping the norm of the gradients; if it is so from the first steps on, \
         look for NaN and infinity in the data",
    )
}
