//! Training of models on batches.

mod accumulated;
mod config;
mod exchange;
mod fit;
mod learning;
mod state;
mod step;
mod tally;

use std::rc::Rc;

use polygrad_core::{Error, Result};
use polygrad_data::DataLoader;
use polygrad_nn::Module;
use polygrad_nn::optim::Optimizer;

pub use config::{TrainerConfig, TrainerOptions};
pub use learning::NonFiniteLoss;
pub use step::{Step, Tensors};

use crate::driver::Driver;
use crate::{Ended, Row, Run, Summary};
use exchange::Exchange;
use fit::Fit;
use learning::Learning;
use step::{Loss, Stepper};

/// Trains a model: epochs or steps, evaluations, checkpoints, metrics, and a run folder. Built by a [`TrainerConfig`].
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
/// let example = |i| ([(i * 7 % 13) as f32, (i * 5 % 11) as f32], usize::from(i * 7 % 13 > i * 5 % 11));
/// let loader = |count| {
///     let examples: Vec<_> = (0..count).map(example).collect();
///     DataLoaderConfig::new(examples).batch_size(20).shuffle(0).build(&device)
/// };
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
    learning: Learning<M, T>,
    driver: Driver,
}

impl TrainerConfig {
    fn trainer<M: Module + 'static, T: 'static>(
        self,
        model: Rc<M>,
        stepper: Stepper<M, T>,
        loss: Loss<M, T>,
        exchange: Box<dyn Exchange>,
    ) -> Result<Trainer<M, T>> {
        let (run, own) = (self.run.checked()?, self.own.checked()?);
        Ok(Trainer {
            learning: Learning::new(own, run.length, model, stepper, loss, exchange)?,
            driver: Driver::new(run),
        })
    }
}

impl<M: Module + 'static, T: Send + 'static> Trainer<M, T> {
    /// Trains to the end, beginning or resuming the run; the model is in evaluation mode afterwards. If the run is
    /// resumed, the loader is set to its position.
    ///
    /// # Errors
    /// Early stopping or `restore_best` without validation data; a loss that is not finite (in f16: too many of them in
    /// a row), naming the step; those of data, model, optimizer, callbacks, device and disk. The last checkpoint is
    /// then still there.
    pub fn fit(&mut self, train: &DataLoader<T>, validation: Option<&DataLoader<T>>) -> Result<Summary> {
        let options = &self.learning.options;
        let needs = [
            ("early_stopping", options.patience.is_some()),
            ("restore_best", options.restore_best),
        ];
        if let (Some((name, _)), None) = (needs.iter().find(|(_, is_set)| *is_set), validation) {
            let message = format!("{name} compares evaluations, and there are no data to evaluate on");
            return Err(Error::invalid(message)
                .with_op("Trainer")
                .with_hint("give validation data, or leave the option out"));
        }
        let mut fit = Fit::new(&mut self.learning, train, validation, &self.driver.options);
        let summary = self.driver.run(&mut fit)?;
        if self.learning.options.restore_best && summary.ended != Ended::Stopped {
            self.restore_best()?;
        }
        Ok(summary)
    }

    /// One optimizer step on a batch, outside of all epochs and files, with the trainer's learning rate, clipping and
    /// moving average; returns the loss before it. In f16, a result that is not finite means that the step was skipped.
    ///
    /// # Errors
    /// Those of [`Trainer::fit`], except for files.
    pub fn step(&mut self, batch: &T) -> Result<f64> {
        self.learning.step(batch)
    }

    /// Loss and metrics of the model, or of its moving average, in evaluation mode over one epoch of data, from its
    /// beginning regardless of the loader's position. The model stays in evaluation mode. With several
    /// [ranks](TrainerConfig::parallel) each takes a part of the data, and all have to call this.
    ///
    /// # Errors
    /// Those of the data, the model, the device and the other ranks.
    pub fn evaluate(&self, data: &DataLoader<T>) -> Result<(f64, Vec<f64>)> {
        self.learning.evaluate(data)
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.learning.model
    }

    /// A shared handle to the model, which may outlive the trainer.
    pub fn shared_model(&self) -> Rc<M> {
        Rc::clone(&self.learning.model)
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &dyn Optimizer {
        self.learning.stepper.optimizer()
    }

    /// The folder of the run.
    pub fn run(&self) -> Option<&Run> {
        self.driver.options.run.as_ref()
    }

    /// All measurements of the run, oldest first; for a run resumed without its `metrics.csv`, those since then.
    pub fn history(&self) -> &[Row] {
        self.driver.history()
    }

    /// Restores the best model.
    fn restore_best(&self) -> Result<()> {
        let model = &self.learning.model;
        match (self.run(), &self.learning.best) {
            (Some(run), _) if self.driver.best.is_some() => model.load(run.best()),
            (None, Some(state)) => model.load_state_dict(state, true).map(drop),
            _ => Ok(()),
        }
    }
}

impl<M: Module, T> std::fmt::Debug for Trainer<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer")
            .field("options", &self.learning.options)
            .field("step", &self.learning.steps)
            .finish_non_exhaustive()
    }
}
