//! The training loop.

mod accumulated;
mod config;
mod event;
mod files;
mod fit;
mod learner;
mod ranks;
mod recover;
mod step;
mod tally;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad_core::Result;
use polygrad_data::{DataLoader, LoaderState};
use polygrad_nn::optim::{Ema, GradScaler, Optimizer};
use polygrad_nn::watch::locate;
use polygrad_nn::{Module, StateDict};
use polygrad_tensor::{Gradients, no_grad};

pub use config::TrainerConfig;
pub use event::{Callback, Control, Event, Progress};
pub use fit::NonFiniteLoss;
pub use learner::{Learner, Measured};
pub use step::{Step, Tensors};

use crate::run::Unwritten;
use crate::{DataParallel, Row, Run};
use event::Figures;
use files::Files;
use ranks::Ranks;
use step::{Loss, Stepper};
use tally::Tally;

/// Trains a model: epochs or steps, evaluations, checkpoints, metrics, and a folder for the run. Made by a [`TrainerConfig`].
///
/// ```
/// use polygrad_data::DataLoaderConfig;
/// use polygrad_nn::{Linear, Module, loss::cross_entropy, optim::{Adam, CosineAnnealingLR}};
/// use polygrad_tensor::{Device, Result, Tensor};
/// use polygrad_train::{Accuracy, Step, TrainerConfig};
///
/// # fn main() -> Result<()> {
/// # let device = Device::<polygrad_cpu::Cpu>::default().into_any();
/// # polygrad_tensor::manual_seed(0);
/// // Whether the first number is larger than the second.
/// let examples = |count| (0..count).map(|i| ([(i * 7 % 13) as f32, (i * 5 % 11) as f32], usize::from(i * 7 % 13 > i * 5 % 11)));
/// let loader = |count| DataLoaderConfig::new(examples(count).collect::<Vec<_>>()).batch_size(20).shuffle(0).build(&device);
/// let (train, test) = (loader(400)?, loader(100)?);
///
/// let model = Linear::new(2, 2, &device)?;
/// let optimizer = Adam::new(model.parameters(), 0.05)?;
/// let mut trainer = TrainerConfig::epochs(10)
///     .schedule(CosineAnnealingLR::new(200))
///     .clip_grad_norm(1.0)
///     .metric(Accuracy::new())
///     .build(model, optimizer, |model, (x, y): &(Tensor, Tensor)| {
///         let logits = model.forward(x)?;
///         Ok(Step::new(cross_entropy(&logits, y)?).outputs(logits, y))
///     })?;
/// let summary = trainer.fit(&train, Some(&test))?;
/// assert!(summary.evaluation.is_some_and(|last| last.metrics[0] > 0.9));
/// # Ok(())
/// # }
/// ```
pub struct Trainer<M: Module, T> {
    model: Rc<M>,
    stepper: Stepper<M, T>,
    loss: Loss<M, T>,
    config: TrainerConfig,
    names: Vec<String>,
    ema: Option<Ema>,
    scaler: Option<GradScaler>,
    /// Of the running epoch, and since the last row.
    epoch: Tally,
    row: Tally,
    step: u64,
    /// Which epoch is running, counted from 1.
    running: u64,
    best: Option<f64>,
    since_best: u64,
    /// The model as it was then, if it is wanted and no file has it.
    best_state: Option<StateDict>,
    /// How many steps and seconds the run had taken when this process took over.
    before: (u64, f64),
    clock: Option<Instant>,
    training: Duration,
    loading: Duration,
    evaluation: Duration,
    examples: u64,
    history: Unwritten,
    files: Option<Files>,
    /// Where it is one of several.
    ranks: Option<Ranks>,
    /// Where the loader stood after the last step.
    committed: LoaderState,
    /// Whether the epoch is over and its evaluation is still to come.
    unfinished: bool,
    /// A loss of the running step that is not finite, in f16, where that is no error; and how many steps in a row were left out.
    overflow: Option<f64>,
    skipped: u64,
    /// What callbacks see of a step: its last batch, and the gradients by which it was taken.
    batch: Option<T>,
    gradients: Option<Gradients>,
}

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// All epochs or steps are done.
    Done,
    /// The evaluations were no longer getting better.
    EarlyStopping,
    /// A callback or the flag asked for it.
    Stopped,
}

/// What a trainer has done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// How it ended.
    pub ended: Ended,
    /// Optimizer steps that the run has taken.
    pub steps: u64,
    /// Whole epochs that the run has taken.
    pub epochs: u64,
    /// The last evaluation.
    pub evaluation: Option<Row>,
    /// The best figure of an evaluation, that of the [monitored](TrainerConfig::monitor) metric.
    pub best: Option<f64>,
    /// Wall-clock seconds that the run has taken.
    pub seconds: f64,
}

impl TrainerConfig {
    fn trainer<M: Module + 'static, T: 'static>(
        self,
        model: Rc<M>,
        stepper: Stepper<M, T>,
        loss: Loss<M, T>,
        parallel: Option<Arc<DataParallel>>,
    ) -> Result<Trainer<M, T>> {
        let tally = Tally::new(self.metrics.clone());
        Ok(Trainer {
            names: self.metrics.iter().map(|metric| metric.name().to_owned()).collect(),
            ema: self.ema.map(|ema| ema.build(&*model)).transpose()?,
            scaler: self.grad_scaler(),
            model,
            stepper,
            loss,
            config: self,
            row: tally.clone(),
            epoch: tally,
            step: 0,
            running: 1,
            best: None,
            since_best: 0,
            best_state: None,
            before: (0, 0.0),
            clock: None,
            training: Duration::ZERO,
            loading: Duration::ZERO,
            evaluation: Duration::ZERO,
            examples: 0,
            history: Unwritten::default(),
            files: None,
            ranks: parallel.map(Ranks::new),
            committed: LoaderState::default(),
            unfinished: false,
            overflow: None,
            skipped: 0,
            batch: None,
            gradients: None,
        })
    }
}

impl<M: Module + 'static, T: Send + 'static> Trainer<M, T> {
    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model, to be held longer than the trainer.
    pub fn shared_model(&self) -> Rc<M> {
        Rc::clone(&self.model)
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &dyn Optimizer {
        self.stepper.optimizer()
    }

    /// The folder of the run.
    pub fn run(&self) -> Option<&Run> {
        self.config.run.as_ref()
    }

    /// Every measurement of the run, oldest first; of a run that was resumed without its `metrics.csv`, those since.
    pub fn history(&self) -> &[Row] {
        match &self.files {
            Some(files) => files.rows(),
            None => self.history.rows(),
        }
    }

    /// Loss and metrics of the model, or of its moving average, in evaluation mode over one epoch of data, from its beginning: whatever has been
    /// taken from the loader before. The model is left in evaluation mode. Of several [ranks](TrainerConfig::parallel) each takes a part of the data, and all
    /// have to call it.
    ///
    /// # Errors
    /// Those of the data, the model, the device and the other ranks.
    pub fn evaluate(&self, data: &DataLoader<T>) -> Result<(f64, Vec<f64>)> {
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
        self.settle()?;
        self.take_part(data, false)?;
        self.model.eval();
        let mut tally = Tally::new(self.config.metrics.clone());
        let mut before = 0;
        let mut batches = data.iter();
        while let Some(batch) = batches.next().transpose()? {
            let position = data.state().position;
            let step = (self.loss)(&self.model, &batch).map_err(|e| locate(&*self.model, e))?;
            tally.add_loss(step.loss.item()?, data.share((position - before) as usize) as u64);
            tally.add_outputs(&step)?;
            before = position;
        }
        let Some(ranks) = &self.ranks else {
            return Ok((tally.loss(), tally.values()));
        };
        let (loss, examples) = tally.sums();
        let [loss, examples] = ranks.sums([loss, examples as f64])?;
        Ok((loss / examples, ranks.merged(&tally)?.values()))
    }

    /// Runs `f` while the model has its moving average, if there is one.
    fn averaged<R>(&self, f: impl FnOnce() -> R) -> Result<R> {
        match &self.ema {
            Some(ema) if ema.n_averaged() > 0 => ema.with_averaged(f),
            _ => Ok(f()),
        }
    }
}

impl<M: Module, T> std::fmt::Debug for Trainer<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer")
            .field("config", &self.config)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
