//! What a driver tells while it works.

use std::path::Path;

use polygrad_core::Result;
use polygrad_nn::Module;
use polygrad_tensor::Gradients;

use super::{Figures, LastStep};
use crate::run::Row;

/// What has just happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Training begins, or goes on after [`Progress::step`] steps: also where those who are left of several ranks go
    /// back to a checkpoint.
    Begin,
    /// Something that the user should know, such as a file that is gone.
    Notice(&'a str),
    /// A step is done: the parameters have changed, unless in f16 it was left out. [`Progress::batch`] and
    /// [`Progress::gradients`] are its.
    Step,
    /// A measurement was taken.
    Row(&'a Row),
    /// An epoch is over, or the last step done; with the evaluation after it if there is one.
    Epoch(Option<&'a Row>),
    /// Training is over, or stopped.
    End,
    /// Training ends with an error, which [`Trainer::fit`](crate::Trainer::fit) or
    /// [`RunConfig::train`](crate::RunConfig::train) gives next.
    Failed,
}

/// Where training stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The running epoch, counted from 1; at its end the one that is over. 0 where there are none.
    pub epoch: u64,
    /// Epochs in all, if that is how the end is known.
    pub epochs: Option<u64>,
    /// Optimizer steps taken.
    pub step: u64,
    /// Steps in all, if that is known.
    pub steps: Option<u64>,
    /// Examples trained on by this process.
    pub examples: u64,
    /// What they are called: `examples`, or a [`Learner`](crate::Learner)'s own word.
    pub unit: &'a str,
    /// Seconds that this process has trained, without evaluation.
    pub training_seconds: f64,
    /// Seconds of these that it waited for batches.
    pub loading_seconds: f64,
    /// Seconds that this process has evaluated.
    pub evaluation_seconds: f64,
    /// Seconds that the run has taken, over all its sessions.
    pub seconds: f64,
    /// Seconds that are left at this rate, if that is known.
    pub seconds_left: Option<f64>,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// Names of the metrics.
    pub metrics: &'a [String],
    /// What the data of evaluations are called.
    pub validation: &'a str,
    /// The folder of the run.
    pub run: Option<&'a Path>,
    /// Every measurement so far, oldest first.
    pub history: &'a [Row],
    pub(super) figures: &'a dyn Figures,
    pub(super) module: Shown<'a>,
    pub(super) last: LastStep<'a>,
}

/// A module, of which nothing is printed.
#[derive(Clone)]
pub(super) struct Shown<'a>(pub(super) Option<&'a dyn Module>);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Module")
    }
}

impl<'a> Progress<'a> {
    /// The model, which is of type `M`, as it is now: with its own parameters, also where evaluations are of a moving
    /// average, and in the mode that it is in. To run it in evaluation, take an [`Evaluation`](polygrad_nn::Evaluation)
    /// of it, which puts the mode back. None of another type, and of a [`Learner`](crate::Learner).
    pub fn model<M: 'static>(&self) -> Option<&'a M> {
        self.last.model?.downcast_ref()
    }

    /// The model of any type: its parameters and buffers by name, its state dict. None of a [`Learner`](crate::Learner)
    /// that does not
    /// [show](crate::Learner::model) one.
    pub fn module(&self) -> Option<&'a dyn Module> {
        self.module.0
    }

    /// The last batch of the step that is done, where batches are of type `T`. None but at [`Event::Step`].
    pub fn batch<T: 'static>(&self) -> Option<&'a T> {
        self.last.batch?.downcast_ref()
    }

    /// The gradients of the step that is done, as the optimizer got them: the mean over all batches and ranks, unscaled
    /// and clipped. In f16 those of a step that was left out are not finite. None but at [`Event::Step`].
    pub fn gradients(&self) -> Option<&'a Gradients> {
        self.last.gradients
    }

    /// The mean training loss of the epoch so far; NaN before its first step.
    pub fn loss(&self) -> f64 {
        self.figures.loss()
    }

    /// The metrics of the epoch so far, on training batches.
    pub fn values(&self) -> Vec<f64> {
        self.figures.values()
    }

    /// A loss and values of the metrics as one reads them: `loss 0.4213  accuracy 85.10 %`.
    pub fn figures(&self, loss: f64, values: &[f64]) -> String {
        let mut text = format!("loss {loss:.4}");
        for (metric, &value) in values.iter().enumerate() {
            if let Some(figure) = self.figures.shown(metric, value) {
                text += &format!("  {figure}");
            }
        }
        text
    }

    /// Examples per second of training, without evaluation; 0 before the first step.
    pub fn examples_per_second(&self) -> f64 {
        match self.training_seconds > 0.0 {
            true => self.examples as f64 / self.training_seconds,
            false => 0.0,
        }
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// With the next batch.
    Continue,
    /// Not: the trainer leaves a checkpoint, from which the run can go on, and ends.
    Stop,
}

/// What is told of each [`Event`]: a progress bar, a logger, a rule by which to stop. Closures are callbacks.
///
/// ```
/// use polygrad_nn::{Linear, Module};
/// use polygrad_tensor::{Result, Tensor};
/// use polygrad_train::{Control, Event, Progress};
///
/// /// Shows each epoch how large the weights and the last gradients are.
/// fn watch(event: Event<'_>, progress: &Progress<'_>) -> Result<Control> {
///     if let (Event::Step, Some(gradients)) = (event, progress.gradients()) {
///         for (name, gradient) in gradients.iter() {
///             println!("{}: {}", name.unwrap_or("?"), gradient.abs()?.amax(())?.item()?);
///         }
///     }
///     if let (Event::Epoch(_), Some(model)) = (event, progress.model::<Linear>()) {
///         println!("{}", model.weight.tensor());
///     }
///     Ok(Control::Continue)
/// }
/// ```
pub trait Callback {
    /// Looks at what has happened.
    ///
    /// # Errors
    /// Whatever should end the training at once.
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> Result<Control>;
}

impl<F: FnMut(Event<'_>, &Progress<'_>) -> Result<Control>> Callback for F {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> Result<Control> {
        self(event, progress)
    }
}
