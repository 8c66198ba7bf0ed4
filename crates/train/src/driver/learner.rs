//! The interface of learners, which the driver trains.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use polygrad_core::communicator::{Communicator, HostSliceMut, Reduction};
use polygrad_core::{Error, Result};
use polygrad_nn::{Checkpoint, Module};
use polygrad_tensor::Gradients;

/// Something that learns step by step. [`RunConfig::train`](crate::RunConfig::train) trains one; a
/// [`Trainer`](crate::Trainer) builds one from a model, an optimizer and data.
///
/// The required methods apply to every learner. The provided ones are for learners that go through data epoch by epoch,
/// take their own measurements, or learn in several processes.
///
/// Learners that learn together on several [ranks](Learner::communicator) must have the same steps, metrics and score,
/// and the same methods are called on every rank, except for [`Learner::save_model`]. If a rank is lost, the others
/// continue, if the learner [can](Learner::rejoin).
pub trait Learner {
    /// Name of its steps, in the plural: `environment steps`.
    fn unit(&self) -> &'static str;

    /// Names of the metrics besides the loss, in the order of [`Measured::metrics`].
    fn metrics(&self) -> Vec<&str>;

    /// Steps so far.
    fn steps(&self) -> u64;

    /// Whether it has finished learning.
    fn is_done(&self) -> bool;

    /// Learns for some steps, or for none if it finds that its [epoch](Learner::is_over) is over.
    ///
    /// # Errors
    /// Errors that end the training.
    fn advance(&mut self) -> Result<Measured>;

    /// The score by which the best model is kept, the higher the better; `None` while it is unknown, or if an
    /// [evaluation](Learner::evaluate) gives it.
    fn score(&self) -> Option<f64>;

    /// Everything needed to continue from here. Its `config` is an object.
    ///
    /// # Errors
    /// State that cannot be saved.
    fn checkpoint(&self) -> Result<Checkpoint>;

    /// Continues from a checkpoint, discarding later learning; returns notices for the user.
    ///
    /// # Errors
    /// When it does not fit.
    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>>;

    /// Passes the flag that asks training to stop to the next [`Learner::advance`], which may then return early:
    /// without a step, and with NaN as figures. Its state is not used any more, since the run continues from its last
    /// checkpoint, which is of before that step. `None`: the next step has to be taken whole. Returns whether it ever
    /// returns early. Default: it does not.
    fn watch(&mut self, stop: Option<&Arc<AtomicBool>>) -> bool {
        let _ = stop;
        false
    }

    /// Notices for the user since the last call; called after each [`Learner::advance`]. Default: none.
    fn take_notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the state is worth a checkpoint although [`Learner::advance`] failed with this error; asked only if it
    /// learns alone. Default: no.
    fn survives(&self, error: &Error) -> bool {
        let _ = error;
        false
    }

    /// Writes the model for use, with [texts by name](crate::RunConfig::model_metadata) in the file's header.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()>;

    /// The model, for callbacks: [`Progress::module`](crate::Progress::module). Default: none.
    fn model(&self) -> Option<&dyn Module> {
        None
    }

    /// The parts of the last step that callbacks can see. Default: nothing.
    fn last_step(&self) -> LastStep<'_> {
        LastStep::default()
    }

    /// Frees everything that only [`Learner::last_step`] shows, after all callbacks have seen it. Default: nothing.
    fn forget_step(&mut self) {}

    /// Prepares for training, before its first checkpoint is written or its last one read. Default: nothing.
    ///
    /// # Errors
    /// Errors that prevent learning.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called before learning begins, or continues after [`Learner::restore`]. Default: nothing.
    ///
    /// # Errors
    /// Errors that prevent learning, such as ranks that do not fit together.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called after learning, whether it finished or was stopped. Default: nothing.
    ///
    /// # Errors
    /// Those of the other ranks.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    /// Its progress in epochs. Default: it has none; the driver then divides its steps into parts.
    fn epochs(&self) -> Option<Epochs> {
        None
    }

    /// Whether an epoch, or the training, is over and its [evaluation](Learner::evaluate) is still to come. Default:
    /// never.
    fn is_over(&self) -> bool {
        false
    }

    /// Measures the model on data that it does not learn from, at the end of an epoch. Default: there are no such data.
    ///
    /// # Errors
    /// Those of the data, the model, the device and the other ranks.
    fn evaluate(&mut self) -> Result<Option<Evaluation>> {
        Ok(None)
    }

    /// Whether a score is better than the best before. Default: a higher one is.
    fn is_better(&self, score: f64, best: f64) -> bool {
        score > best
    }

    /// Called with whether the last score was the best so far. Default: nothing.
    ///
    /// # Errors
    /// When memory runs out.
    fn judged(&mut self, is_best: bool) -> Result<()> {
        let _ = is_best;
        Ok(())
    }

    /// Whether training should end because evaluations no longer improve. Default: never.
    fn stops_early(&self) -> bool {
        false
    }

    /// Called after an epoch's evaluation: the next epoch begins with new figures. Default: nothing.
    fn finish_epoch(&mut self) {}

    /// Its own measurements in the running epoch. Default: none; the driver then averages the results of
    /// [`Learner::advance`].
    fn figures(&self) -> Option<&dyn Figures> {
        None
    }

    /// Whether a row is due, if it keeps its own figures; `every` is
    /// [`RunConfig::log_every`](crate::RunConfig::log_every). Default: the driver decides by counting.
    fn is_row_due(&self, every: Option<u64>) -> Option<bool> {
        let _ = every;
        None
    }

    /// Loss and metrics since the last row, over all ranks, if it keeps its own figures; resets them.
    ///
    /// # Errors
    /// Those of the other ranks.
    fn take_row(&mut self) -> Result<Option<(f64, Vec<f64>)>> {
        Ok(None)
    }

    /// The group that it belongs to. Default: it learns alone.
    fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        None
    }

    /// Whether any rank wants to stop; `wish` is whether this one does. Default: asks all ranks.
    ///
    /// # Errors
    /// Those of the group.
    fn stops(&mut self, wish: bool) -> Result<bool> {
        let mut stops = [u8::from(wish)];
        if let Some(group) = self.communicator() {
            group.all_reduce(HostSliceMut::new(&mut stops), Reduction::Max)?;
        }
        Ok(stops != [0])
    }

    /// Continues as a member of `group`, the ranks that remain after others were lost. Returns whether it can; if not,
    /// training ends with the error that revealed the loss. [`Learner::catch_up`] is called next. Default: it cannot.
    ///
    /// # Errors
    /// When memory runs out; those of the group.
    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        let _ = group;
        Ok(false)
    }

    /// After [`Learner::rejoin`]: takes the state of the most advanced rank, and returns that rank. Default: `None`;
    /// all ranks then go back to the last checkpoint of the run.
    ///
    /// # Errors
    /// Those of the group.
    fn catch_up(&mut self) -> Result<Option<usize>> {
        Ok(None)
    }

    /// The state lost with a rank if [`Learner::catch_up`] returns `None`, for the error of a training without a run.
    /// Default: `what its learner had`.
    fn lost_part(&self) -> &'static str {
        "what its learner had"
    }
}

/// The measurements of [`Learner::advance`].
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The loss.
    pub loss: f64,
    /// The metrics; NaN for those without anything to measure.
    pub metrics: Vec<f64>,
    /// The learning rate.
    pub learning_rate: f64,
    /// Seconds spent waiting for data, such as for environments.
    pub loading_seconds: f64,
}

impl Measured {
    /// For an [`advance`](Learner::advance) without a step: NaN as the loss and the metrics.
    pub fn nothing(metrics: usize) -> Self {
        Self {
            loss: f64::NAN,
            metrics: vec![f64::NAN; metrics],
            learning_rate: f64::NAN,
            loading_seconds: 0.0,
        }
    }
}

/// The result of [`Learner::evaluate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The loss.
    pub loss: f64,
    /// The metrics, in the order of [`Learner::metrics`].
    pub metrics: Vec<f64>,
    /// The score by which the best model is kept; see [`Learner::is_better`]. NaN is never the best.
    pub score: f64,
}

/// The progress of a learner in epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epochs {
    /// The running epoch, counted from 1; at its end the one that is over.
    pub running: u64,
    /// Total number of epochs, if the length is given in epochs.
    pub total: Option<u64>,
    /// Number of completed epochs.
    pub done: u64,
    /// Completed fraction of the next one, from 0 to 1; 0 if unknown.
    pub part: f64,
    /// Total number of steps, if known.
    pub steps: Option<u64>,
    /// Examples that this process has learnt from.
    pub examples: u64,
    /// The current learning rate.
    pub learning_rate: f64,
}

/// Loss and metrics of an epoch so far.
pub trait Figures: std::fmt::Debug {
    /// The mean loss; NaN without data.
    fn loss(&self) -> f64;

    /// The metrics.
    fn values(&self) -> Vec<f64>;

    /// A metric's value with its name, as text.
    fn shown(&self, metric: usize, value: f64) -> Option<String>;
}

/// The parts of a step that callbacks can see.
#[derive(Clone, Copy, Default)]
pub struct LastStep<'a> {
    /// The model, of any type: [`Progress::model`](crate::Progress::model).
    pub model: Option<&'a dyn Any>,
    /// The last batch: [`Progress::batch`](crate::Progress::batch).
    pub batch: Option<&'a dyn Any>,
    /// The gradients: [`Progress::gradients`](crate::Progress::gradients).
    pub gradients: Option<&'a Gradients>,
}

impl std::fmt::Debug for LastStep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastStep")
            .field("gradients", &self.gradients)
            .finish_non_exhaustive()
    }
}
