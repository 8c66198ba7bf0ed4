//! Options of a trainer.

use std::rc::Rc;
use std::sync::Arc;

use polygrad_core::{Error, Result};
use polygrad_nn::Module;
use polygrad_nn::optim::{EmaConfig, GradScaler, Optimizer, Schedule};
use polygrad_tensor::{DType, autocast};

use super::Trainer;
use super::exchange::{Alone, Exchange, Group};
use super::step::{Loss, Step, Stepper, Tensors};
use crate::driver::{Length, at_least_one};
use crate::{DataParallel, Metric, RunConfig};

/// Options of a [`Trainer`]: those of every [run](RunConfig), and those about batches.
pub type TrainerConfig = RunConfig<TrainerOptions>;

/// Options of a [`Trainer`] besides those of every run.
pub struct TrainerOptions {
    pub(super) accumulate: u64,
    pub(super) max_norm: Option<f64>,
    pub(super) schedule: Option<Box<dyn Schedule>>,
    pub(super) ema: Option<EmaConfig>,
    pub(super) autocast: Option<DType>,
    pub(super) metrics: Vec<Box<dyn Metric>>,
    pub(super) monitor: Option<String>,
    pub(super) patience: Option<u64>,
    pub(super) restore_best: bool,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            accumulate: 1,
            max_norm: None,
            schedule: None,
            ema: None,
            autocast: None,
            metrics: Vec::new(),
            monitor: None,
            patience: None,
            restore_best: false,
        }
    }
}

impl TrainerConfig {
    /// Trains for `epochs` epochs.
    pub fn epochs(epochs: u64) -> Self {
        Self::new(Length::Epochs(epochs))
    }

    /// Takes each optimizer step with the gradients of `batches` batches, at least 1; fewer at the end of an epoch.
    /// They count as one large batch: each is weighted by its examples, like the parts of several
    /// [ranks](TrainerConfig::parallel), so that a smaller last one counts less. A loss that is a mean over something
    /// else, such as tokens that are not ignored, is also weighted by examples; to be exact, compute it as a sum
    /// divided by the number of examples. Default: 1.
    #[must_use]
    pub fn accumulate(mut self, batches: u64) -> Self {
        self.own.accumulate = batches;
        self
    }

    /// Scales the gradients of a step down if their norm exceeds this; see
    /// [`clip_grad_norm`](polygrad_nn::optim::clip_grad_norm).
    #[must_use]
    pub fn clip_grad_norm(mut self, max_norm: f64) -> Self {
        self.own.max_norm = Some(max_norm);
        self
    }

    /// Sets the learning rates before each step, by the number of steps taken.
    #[must_use]
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> Self {
        self.own.schedule = Some(Box::new(schedule));
        self
    }

    /// Keeps a moving average of the parameters, updated after each step. Evaluations, and the files of the best and
    /// the last model, use the average.
    #[must_use]
    pub fn ema(mut self, ema: EmaConfig) -> Self {
        self.own.ema = Some(ema);
        self
    }

    /// Computes losses, in training and in evaluations, in mixed precision: see [`autocast`]. With f16 the loss is
    /// scaled by a [`GradScaler`] with its defaults, whose state is in checkpoints. A step whose loss or gradients are
    /// not finite is counted, but changes no parameter and is not part of any measurement, and the scale is halved; 32
    /// of them in a row end training with an error. With bf16 and f32, whose range is larger, the first loss that is
    /// not finite ends training.
    #[must_use]
    pub fn autocast(mut self, dtype: DType) -> Self {
        self.own.autocast = Some(dtype);
        self
    }

    /// Also measures this metric, on training batches and in evaluations. The step has to have
    /// [outputs](Step::outputs).
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'static) -> Self {
        self.own.metrics.push(Box::new(metric));
        self
    }

    /// The metric of the evaluation that decides which model is the best. Default: the loss.
    #[must_use]
    pub fn monitor(mut self, metric: &str) -> Self {
        self.own.monitor = Some(metric.to_owned());
        self
    }

    /// Ends training after `patience` consecutive evaluations that were not better than the best before. Default:
    /// never.
    #[must_use]
    pub fn early_stopping(mut self, patience: u64) -> Self {
        self.own.patience = Some(patience);
        self
    }

    /// When training is over, restores the model's weights from the best evaluation. Default: it keeps its last ones.
    #[must_use]
    pub fn restore_best(mut self, restore: bool) -> Self {
        self.own.restore_best = restore;
        self
    }

    /// A trainer for a model, an optimizer of its parameters, and a function that computes the loss of a batch.
    ///
    /// # Errors
    /// An invalid option; an unknown metric to monitor.
    pub fn build<M: Module + 'static, T: 'static, S: Into<Step>>(
        self,
        model: M,
        optimizer: impl Optimizer + 'static,
        loss: impl Fn(&M, &T) -> Result<S> + 'static,
    ) -> Result<Trainer<M, T>> {
        let stepper = Stepper::Written(Box::new(optimizer) as Box<dyn Optimizer>);
        let loss = self.loss(loss);
        let parallel = self.data_parallel(&model)?;
        self.trainer(Rc::new(model), stepper, loss, exchange(parallel))
    }

    /// As [`TrainerConfig::build`], with steps that are recorded and replayed: see
    /// [`CapturedStep`](polygrad_nn::CapturedStep) for what this requires of the function.
    ///
    /// # Errors
    /// As [`TrainerConfig::build`].
    pub fn build_captured<M: Module + 'static, T: Tensors + 'static, S: Into<Step>>(
        self,
        model: M,
        optimizer: impl Optimizer + 'static,
        loss: impl Fn(&M, &T) -> Result<S> + 'static,
    ) -> Result<Trainer<M, T>> {
        let loss = self.loss(loss);
        let model = Rc::new(model);
        let is_scaled = self.own.grad_scaler().is_some();
        let parallel = self.data_parallel(&*model)?;
        let stepper = Stepper::captured(
            &model,
            Box::new(optimizer),
            Rc::clone(&loss),
            is_scaled,
            parallel.clone(),
        );
        self.trainer(model, stepper, loss, exchange(parallel))
    }

    fn data_parallel(&self, model: &impl Module) -> Result<Option<Arc<DataParallel>>> {
        let Some(communicator) = self.run.group()? else {
            return Ok(None);
        };
        DataParallel::new(Arc::clone(communicator), model).map(|parallel| Some(Arc::new(parallel)))
    }

    /// The loss function in the selected precision.
    fn loss<M: 'static, T: 'static, S: Into<Step>>(&self, loss: impl Fn(&M, &T) -> Result<S> + 'static) -> Loss<M, T> {
        let loss = move |model: &M, batch: &T| loss(model, batch).map(Into::into);
        match self.own.autocast {
            Some(dtype) => Rc::new(move |model, batch| autocast(dtype, || loss(model, batch))),
            None => Rc::new(loss),
        }
    }
}

impl TrainerOptions {
    /// The gradient scaler, which only f16 needs.
    pub(super) fn grad_scaler(&self) -> Option<GradScaler> {
        (self.autocast == Some(DType::F16)).then(GradScaler::new)
    }

    pub(super) fn checked(self) -> Result<Self> {
        at_least_one(&[
            ("accumulate", self.accumulate == 0),
            ("early_stopping", self.patience == Some(0)),
        ])?;
        let fail = |text: String| Err(Error::invalid(text).with_op("Trainer"));
        let names: Vec<&str> = self.metrics.iter().map(|metric| metric.name()).collect();
        if let Some(name) = names
            .iter()
            .find(|name| name.contains([',', '\n']) || ["", "loss"].contains(*name))
        {
            return fail(format!("a metric cannot be called {name:?}"));
        }
        if let Some((i, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return fail(format!("metric {i} has the name of another one: {name:?}"));
        }
        match self.monitor.as_deref() {
            Some(monitor) if monitor != "loss" && !names.contains(&monitor) => {
                Err(Error::invalid(format!("there is no metric {monitor:?} to monitor"))
                    .with_op("Trainer")
                    .with_hint(format!("it is \"loss\" or one of {names:?}")))
            }
            _ => Ok(self),
        }
    }
}

fn exchange(parallel: Option<Arc<DataParallel>>) -> Box<dyn Exchange> {
    match parallel {
        Some(parallel) => Box::new(Group::new(parallel)),
        None => Box::new(Alone),
    }
}

impl std::fmt::Debug for TrainerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainerOptions")
            .field("accumulate", &self.accumulate)
            .field("max_norm", &self.max_norm)
            .field("autocast", &self.autocast)
            .finish_non_exhaustive()
    }
}
