//! Options of a trainer.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_nn::Module;
use polygrad_nn::optim::{EmaConfig, GradScaler, Optimizer, Schedule};
use polygrad_tensor::{DType, autocast};
use serde::Serialize;
use serde_json::Value;

use super::step::{Loss, Step, Stepper, Tensors};
use super::{Callback, Trainer};
use crate::{DataParallel, Metric, Run};

/// When training ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Epochs(u64),
    Steps(u64),
}

/// Options of a [`Trainer`].
pub struct TrainerConfig {
    pub(super) length: Length,
    pub(super) accumulate: u64,
    pub(super) max_norm: Option<f64>,
    pub(super) schedule: Option<Box<dyn Schedule>>,
    pub(super) ema: Option<EmaConfig>,
    pub(super) autocast: Option<DType>,
    pub(super) metrics: Vec<Box<dyn Metric>>,
    pub(super) monitor: Option<String>,
    pub(super) patience: Option<u64>,
    pub(super) restore_best: bool,
    pub(super) log_every: Option<u64>,
    pub(super) checkpoint_every: Option<u64>,
    pub(super) run: Option<Run>,
    pub(super) settings: Value,
    /// The settings as text.
    pub(super) config: String,
    pub(super) model_metadata: BTreeMap<String, String>,
    pub(super) validation: String,
    pub(super) callbacks: Vec<Box<dyn Callback>>,
    pub(super) stop: Option<Arc<AtomicBool>>,
    pub(super) communicator: Option<Arc<dyn Communicator>>,
}

impl TrainerConfig {
    /// Trains for so many epochs.
    pub fn epochs(epochs: u64) -> Self {
        Self::new(Length::Epochs(epochs))
    }

    /// Trains for so many optimizer steps, over as many epochs as they take.
    pub fn steps(steps: u64) -> Self {
        Self::new(Length::Steps(steps))
    }

    fn new(length: Length) -> Self {
        Self {
            length,
            accumulate: 1,
            max_norm: None,
            schedule: None,
            ema: None,
            autocast: None,
            metrics: Vec::new(),
            monitor: None,
            patience: None,
            restore_best: false,
            log_every: None,
            checkpoint_every: None,
            run: None,
            settings: Value::Object(serde_json::Map::new()),
            config: "{}\n".to_owned(),
            model_metadata: BTreeMap::new(),
            validation: "validation".to_owned(),
            callbacks: Vec::new(),
            stop: None,
            communicator: None,
        }
    }

    /// Takes each optimizer step by the gradients of so many batches, at least 1, fewer at the end of an epoch. They count as one large batch:
    /// each by its examples, as the parts of several [ranks](TrainerConfig::parallel) do, so that a smaller last one counts less. A loss that is
    /// a mean over something else, such as tokens that are not ignored, is weighed by examples all the same; one that is to be exact is a sum
    /// divided by the examples. Default: 1.
    #[must_use]
    pub fn accumulate(mut self, batches: u64) -> Self {
        self.accumulate = batches;
        self
    }

    /// Scales the gradients of a step to this norm where theirs is larger; see [`clip_grad_norm`](polygrad_nn::optim::clip_grad_norm).
    #[must_use]
    pub fn clip_grad_norm(mut self, max_norm: f64) -> Self {
        self.max_norm = Some(max_norm);
        self
    }

    /// Sets the learning rates before each step by the number of steps taken.
    #[must_use]
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> Self {
        self.schedule = Some(Box::new(schedule));
        self
    }

    /// Keeps a moving average of the parameters, updated after each step. The model is evaluated, and its best and last files are written, with
    /// the average.
    #[must_use]
    pub fn ema(mut self, ema: EmaConfig) -> Self {
        self.ema = Some(ema);
        self
    }

    /// Computes losses, in training and in evaluations, in mixed precision: see [`autocast`]. With f16 the loss is scaled by a [`GradScaler`] with
    /// its defaults, whose state is in checkpoints; a step whose loss or gradients are not finite counts, but changes no parameter and is in no
    /// figure, and the scale is halved. After 32 of them in a row training ends with an error. In bf16 and f32, whose range is larger, the
    /// first loss that is not finite ends it.
    #[must_use]
    pub fn autocast(mut self, dtype: DType) -> Self {
        self.autocast = Some(dtype);
        self
    }

    /// Measures this too, on training batches and in evaluations. The step has to give [outputs](Step::outputs).
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'static) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// By which metric of the evaluation a model is the best so far. Default: the loss.
    #[must_use]
    pub fn monitor(mut self, metric: &str) -> Self {
        self.monitor = Some(metric.to_owned());
        self
    }

    /// Ends the training once so many evaluations in a row were no better than the best before. Default: never.
    #[must_use]
    pub fn early_stopping(mut self, patience: u64) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Gives the model, when training is over, the weights that it had when the evaluation was best. Default: it keeps its last ones.
    #[must_use]
    pub fn restore_best(mut self, restore: bool) -> Self {
        self.restore_best = restore;
        self
    }

    /// Takes down a row of training measurements after so many steps, and at the end of each epoch. Default: a tenth of an epoch, or 100 steps
    /// where nobody knows how long that is.
    #[must_use]
    pub fn log_every(mut self, steps: u64) -> Self {
        self.log_every = Some(steps);
        self
    }

    /// Writes the checkpoint after so many steps, too. Default: after each epoch alone.
    #[must_use]
    pub fn checkpoint_every(mut self, steps: u64) -> Self {
        self.checkpoint_every = Some(steps);
        self
    }

    /// Leaves the model, its checkpoint, and all measurements in a folder, and goes on from the checkpoint that is there.
    #[must_use]
    pub fn run(mut self, run: Run) -> Self {
        self.run = Some(run);
        self
    }

    /// What `config.json` in the run folder says, and the checkpoint too: options of the program, such as sizes of the model. A run that goes on
    /// takes the new ones; [`RunFolder::settings`](crate::RunFolder::settings) has those that it began with. Default: nothing.
    ///
    /// # Errors
    /// What JSON cannot say.
    pub fn settings(mut self, settings: &impl Serialize) -> Result<Self> {
        let unwritable = |e| {
            Error::new(
                ErrorKind::Format,
                format!("these settings cannot be written as JSON: {e}"),
            )
        };
        self.settings = serde_json::to_value(settings).map_err(unwritable)?;
        // In the order of the fields, which a value does not keep.
        self.config = serde_json::to_string_pretty(settings).map_err(unwritable)? + "\n";
        Ok(self)
    }

    /// Texts by name in the headers of the model's files, such as what it was made by. Default: none.
    #[must_use]
    pub fn model_metadata(mut self, metadata: BTreeMap<String, String>) -> Self {
        self.model_metadata = metadata;
        self
    }

    /// What the data of evaluations are called in files. Default: `validation`.
    #[must_use]
    pub fn validation_name(mut self, name: &str) -> Self {
        self.validation = name.to_owned();
        self
    }

    /// Is told of everything that happens.
    #[must_use]
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Stops after the step during which the flag was set, leaving a checkpoint: for signal handlers.
    #[must_use]
    pub fn stop_flag(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = Some(flag);
        self
    }

    /// Trains together with the other processes of a group, each on a part of every batch: with `n` of them a step sees `n` times the batch size.
    /// Gradients, losses and metrics are those of the joined batch, the loss being a mean over examples; layers that mix examples, such as batch
    /// normalisation, see this process's part alone, and their buffers are those of rank 0, unless they are
    /// [synchronized](polygrad_nn::sync_batch_norm).
    ///
    /// Every process makes the same model of the same seed, the same loaders, and the same options; that is checked when training begins. Rank 0
    /// alone keeps a [run](TrainerConfig::run), whose checkpoint is an ordinary one: any number of processes goes on from it.
    /// Random numbers of the training are others on every rank. Whoever is asked to stop stops all, after the next step.
    ///
    /// Where a rank is lost and the engine can go on without it ([`Communicator::shrink`]), those who are left take the state of the one that has come
    /// furthest, and go on from the last step. Where the optimizer's moments are [spread](crate::ShardedOptimizer), a part of them is lost, too: then
    /// all go back to the last checkpoint of the run. Rank 0 of those who are left takes over the run.
    ///
    /// A [`Learner`](crate::Learner) has to be one of the same group, and says itself what each of them does.
    #[must_use]
    pub fn parallel(mut self, communicator: Arc<dyn Communicator>) -> Self {
        self.communicator = Some(communicator);
        self
    }

    /// A trainer for a model, an optimizer of its parameters, and a function that gives the loss of a batch.
    ///
    /// # Errors
    /// An option that makes no sense; a metric to monitor that there is not.
    pub fn build<M: Module + 'static, T: 'static, S: Into<Step>>(
        self,
        model: M,
        optimizer: impl Optimizer + 'static,
        loss: impl Fn(&M, &T) -> Result<S> + 'static,
    ) -> Result<Trainer<M, T>> {
        let stepper = Stepper::Written(Box::new(optimizer) as Box<dyn Optimizer>);
        let loss = self.loss(loss);
        let parallel = self.data_parallel(&model)?;
        self.checked()?.trainer(Rc::new(model), stepper, loss, parallel)
    }

    /// The same, whose steps are recorded and replayed: see [`CapturedStep`](polygrad_nn::CapturedStep) for what that asks of the function.
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
        let is_scaled = self.grad_scaler().is_some();
        let parallel = self.data_parallel(&*model)?;
        let stepper = Stepper::captured(
            &model,
            Box::new(optimizer),
            Rc::clone(&loss),
            is_scaled,
            parallel.clone(),
        );
        self.checked()?.trainer(model, stepper, loss, parallel)
    }

    fn data_parallel(&self, model: &impl Module) -> Result<Option<Arc<DataParallel>>> {
        let Some(communicator) = self.group()? else {
            return Ok(None);
        };
        DataParallel::new(Arc::clone(communicator), model).map(|parallel| Some(Arc::new(parallel)))
    }

    /// Those that train together, one of which at most keeps a run.
    pub(super) fn group(&self) -> Result<Option<&Arc<dyn Communicator>>> {
        match &self.communicator {
            Some(communicator) if communicator.rank() > 0 && self.run.is_some() => {
                let message = format!("rank {} has a run, which rank 0 alone keeps", communicator.rank());
                Err(Error::invalid(message).with_op("Trainer"))
            }
            group => Ok(group.as_ref()),
        }
    }

    /// The loss in the precision that was asked for.
    fn loss<M: 'static, T: 'static, S: Into<Step>>(&self, loss: impl Fn(&M, &T) -> Result<S> + 'static) -> Loss<M, T> {
        let loss = move |model: &M, batch: &T| loss(model, batch).map(Into::into);
        match self.autocast {
            Some(dtype) => Rc::new(move |model, batch| autocast(dtype, || loss(model, batch))),
            None => Rc::new(loss),
        }
    }

    /// What f16 needs.
    pub(super) fn grad_scaler(&self) -> Option<GradScaler> {
        (self.autocast == Some(DType::F16)).then(GradScaler::new)
    }

    pub(super) fn checked(self) -> Result<Self> {
        let fail = |text: String| Err(Error::invalid(text).with_op("Trainer"));
        let zero = [
            ("epochs", self.length == Length::Epochs(0)),
            ("steps", self.length == Length::Steps(0)),
            ("accumulate", self.accumulate == 0),
            ("log_every", self.log_every == Some(0)),
            ("checkpoint_every", self.checkpoint_every == Some(0)),
            ("early_stopping", self.patience == Some(0)),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, zero)| *zero) {
            return fail(format!("{name} is at least 1"));
        }
        let names: Vec<&str> = self.metrics.iter().map(|metric| metric.name()).collect();
        if let Some(name) = names
            .iter()
            .find(|name| name.contains([',', '\n']) || ["", "loss"].contains(*name))
        {
            return fail(format!("a metric cannot be called {name:?}"));
        }
        if let Some((i, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return fail(format!("metric {i} is called {name:?} as another one is"));
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

impl std::fmt::Debug for TrainerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainerConfig")
            .field("length", &self.length)
            .field("accumulate", &self.accumulate)
            .field("max_norm", &self.max_norm)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
