//! Events of a training.

use std::path::Path;

use polygrad_core::Result;
use polygrad_nn::Module;
use polygrad_tensor::Gradients;

use super::{Figures, LastStep};
use crate::run::Row;

/// An event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Training begins, or continues after [`Progress::step`] steps, also when ranks that remain after a loss go back
    /// to a checkpoint.
    Begin,
    /// Something that the user should know, such as a missing file.
    Notice(&'a str),
    /// A step is done: the parameters have changed, unless it was skipped in f16. [`Progress::batch`] and
    /// [`Progress::gradients`] are those of this step.
    Step,
    /// A measurement was taken.
    Row(&'a Row),
    /// An epoch is over, or the last step is done; with the evaluation after it, if there is one.
    Epoch(Option<&'a Row>),
    /// Training is over, or stopped.
    End,
    /// Training ends with an error, which [`Trainer::fit`](crate::Trainer::fit) or
    /// [`RunConfig::train`](crate::RunConfig::train) returns next.
    Failed,
}

/// The progress of training.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The running epoch, counted from 1; at its end the one that is over. 0 if there are no epochs.
    pub epoch: u64,
    /// Total number of epochs, if the length is given in epochs.
    pub epochs: Option<u64>,
    /// Optimizer steps taken.
    pub step: u64,
    /// Total number of steps, if it is known.
    pub steps: Option<u64>,
    /// Examples trained on by this process.
    pub examples: u64,
    /// Name of an example: `examples`, or the [`Learner`](crate::Learner)'s own word.
    pub unit: &'a str,
    /// Seconds that this process has trained, without evaluation.
    pub training_seconds: f64,
    /// Seconds of that time spent waiting for batches.
    pub loading_seconds: f64,
    /// Seconds that this process has evaluated.
    pub evaluation_seconds: f64,
    /// Seconds that the run has taken, over all its sessions.
    pub seconds: f64,
    /// Estimated seconds until the end, if known.
    pub seconds_left: Option<f64>,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// Names of the metrics.
    pub metrics: &'a [String],
    /// Name of the evaluation data.
    pub validation: &'a str,
    /// The folder of the run.
    pub run: Option<&'a Path>,
    /// Every measurement so far, oldest first.
    pub history: &'a [Row],
    pub(super) figures: &'a dyn Figures,
    pub(super) module: Shown<'a>,
    pub(super) last: LastStep<'a>,
}

/// A module that is left out of `Debug` output.
#[derive(Clone)]
pub(super) struct Shown<'a>(pub(super) Option<&'a dyn Module>);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Module")
    }
}

impl<'a> Progress<'a> {
    /// The model, if it is of type `M`, in its current state: with its own parameters, even if evaluations use a moving
    /// average, and in its current mode. To run it in evaluation, use an [`Evaluation`](polygrad_nn::Evaluation) of it,
    /// which restores the mode. `None` for another type, and for a [`Learner`](crate::Learner).
    pub fn model<M: 'static>(&self) -> Option<&'a M> {
        self.last.model?.downcast_ref()
    }

    /// The model regardless of its type: its parameters and buffers by name, its state dict. `None` for a
    /// [`Learner`](crate::Learner) that does not [show](crate::Learner::model) one.
    pub fn module(&self) -> Option<&'a dyn Module> {
        self.module.0
    }

    /// The last batch of the completed step, if batches are of type `T`. `None` except at [`Event::Step`].
    pub fn batch<T: 'static>(&self) -> Option<&'a T> {
        self.last.batch?.downcast_ref()
    }

    /// The gradients of the completed step, as the optimizer got them: the mean over all batches and ranks, unscaled
    /// and clipped. In f16, those of a skipped step are not finite. `None` except at [`Event::Step`].
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

    /// A loss and values of the metrics as text: `loss 0.4213  accuracy 85.10 %`.
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

/// Whether training continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Continues.
    Continue,
    /// Stops: the trainer writes a checkpoint, from which the run can continue, and ends.
    Stop,
}

/// Receives each [`Event`]: a progress bar, a logger, a stopping rule. Closures are callbacks.
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
    /// Handles an event.
    ///
    /// # Errors
    /// Any error ends the training at once.
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> Result<Control>;
}

impl<F: FnMut(Event<'_>, &Progress<'_>) -> Result<Control>> Callback for F {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> Result<Control> {
        self(event, progress)
    }
}
