//! What a driver trains.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use polygrad_core::communicator::{Communicator, HostSliceMut, Reduction};
use polygrad_core::{Error, Result};
use polygrad_nn::{Checkpoint, Module};
use polygrad_tensor::Gradients;

/// Something that learns step by step. [`RunConfig::train`](crate::RunConfig::train) trains one; a
/// [`Trainer`](crate::Trainer) makes one of a model, an optimizer and data.
///
/// What has to be written is what every learner has. The provided methods are for those that go through data epoch by
/// epoch, measure themselves, or learn in several processes.
///
/// One that learns together with those of other [ranks](Learner::communicator) has the same steps, metrics and score as
/// they, and every rank calls the same methods, but for [`Learner::save_model`]. Where a rank is lost, those who are
/// left go on, if the learner
/// [can](Learner::rejoin).
pub trait Learner {
    /// What is counted as a step, in the plural: `environment steps`.
    fn unit(&self) -> &'static str;

    /// What is measured beside the loss, in the order of [`Measured::metrics`].
    fn metrics(&self) -> Vec<&str>;

    /// Steps so far.
    fn steps(&self) -> u64;

    /// Whether there is nothing more to learn.
    fn is_done(&self) -> bool;

    /// Learns for some steps, or for none where it finds that its [epoch](Learner::is_over) is over.
    ///
    /// # Errors
    /// What ends the training.
    fn advance(&mut self) -> Result<Measured>;

    /// How good it is, by which the best model is kept: the higher the better; none while that is unknown, or where an
    /// [evaluation](Learner::evaluate) says it.
    fn score(&self) -> Option<f64>;

    /// All that is needed to go on from here. Its `config` is an object.
    ///
    /// # Errors
    /// What cannot be saved.
    fn checkpoint(&self) -> Result<Checkpoint>;

    /// Goes on from a checkpoint, whatever has been learnt since; gives what the user should know.
    ///
    /// # Errors
    /// When it does not fit.
    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>>;

    /// What the user should know since this was asked last; asked after each [`Learner::advance`]. Default: nothing.
    fn take_notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether [`Learner::advance`], which failed with this error, has left a state that is worth a checkpoint, where
    /// it learns alone. Default: no.
    fn survives(&self, error: &Error) -> bool {
        let _ = error;
        false
    }

    /// Writes the model, for use, with [texts by name](crate::RunConfig::model_metadata) in the file's header.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()>;

    /// The model, for callbacks: [`Progress::module`](crate::Progress::module). Default: none is shown.
    fn model(&self) -> Option<&dyn Module> {
        None
    }

    /// What callbacks can see of the step that was just taken. Default: nothing.
    fn last_step(&self) -> LastStep<'_> {
        LastStep::default()
    }

    /// Frees what only [`Learner::last_step`] shows: all callbacks have seen it. Default: nothing.
    fn forget_step(&mut self) {}

    /// Prepares for a training, before its first checkpoint is written or its last one read. Default: nothing.
    ///
    /// # Errors
    /// What keeps it from learning.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Is about to learn, from the beginning or after [`Learner::restore`]. Default: nothing.
    ///
    /// # Errors
    /// What keeps it from learning, such as ranks that do not fit together.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Has learnt, to its end or until it was stopped. Default: nothing.
    ///
    /// # Errors
    /// Those of the other ranks.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    /// Where it is in its epochs. Default: it has none; the driver then cuts its steps into parts.
    fn epochs(&self) -> Option<Epochs> {
        None
    }

    /// Whether an epoch, or the training, is over and its [evaluation](Learner::evaluate) still to come. Default:
    /// never.
    fn is_over(&self) -> bool {
        false
    }

    /// Measures the model on data that it does not learn from, at the end of an epoch. Default: there are none.
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

    /// Learns that the last score was the best so far, or was not. Default: nothing.
    ///
    /// # Errors
    /// When memory runs out.
    fn judged(&mut self, is_best: bool) -> Result<()> {
        let _ = is_best;
        Ok(())
    }

    /// Whether training should end since evaluations no longer get better. Default: never.
    fn stops_early(&self) -> bool {
        false
    }

    /// The epoch has been evaluated: the next one begins with new figures. Default: nothing.
    fn finish_epoch(&mut self) {}

    /// What it has measured itself in the running epoch. Default: nothing; the driver then takes means of what
    /// [`Learner::advance`] measured.
    fn figures(&self) -> Option<&dyn Figures> {
        None
    }

    /// Whether a row is due, where it keeps figures itself; `every` is
    /// [`RunConfig::log_every`](crate::RunConfig::log_every). Default: the driver counts.
    fn is_row_due(&self, every: Option<u64>) -> Option<bool> {
        let _ = every;
        None
    }

    /// Loss and metrics since the last row, over all ranks, where it keeps figures itself; they begin anew.
    ///
    /// # Errors
    /// Those of the other ranks.
    fn take_row(&mut self) -> Result<Option<(f64, Vec<f64>)>> {
        Ok(None)
    }

    /// The group that it is one of. Default: it learns alone.
    fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        None
    }

    /// Whether any rank wants to stop, as this one does or does not. Default: asks all of them.
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

    /// Is from now on one of `group`, those who are left of its ranks after others were lost; gives whether it can be:
    /// if not, training ends with the error by which the loss was found. [`Learner::catch_up`] comes next. Default: it
    /// cannot.
    ///
    /// # Errors
    /// When memory runs out; those of the group.
    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        let _ = group;
        Ok(false)
    }

    /// After [`Learner::rejoin`]: takes the state of the rank that has come furthest, and gives which that is. Default:
    /// none; all then go back to the last checkpoint of the run.
    ///
    /// # Errors
    /// Those of the group.
    fn catch_up(&mut self) -> Result<Option<usize>> {
        Ok(None)
    }

    /// What is gone with a lost rank where [`Learner::catch_up`] gives none, for the error of a training without a run.
    /// Default: `what its learner had`.
    fn lost_part(&self) -> &'static str {
        "what its learner had"
    }
}

/// What [`Learner::advance`] has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The loss.
    pub loss: f64,
    /// The metrics; NaN of what there was nothing to measure of.
    pub metrics: Vec<f64>,
    /// The learning rate.
    pub learning_rate: f64,
    /// Seconds that it waited for data, such as for environments.
    pub loading_seconds: f64,
}

/// What [`Learner::evaluate`] has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The loss.
    pub loss: f64,
    /// The metrics, in the order of [`Learner::metrics`].
    pub metrics: Vec<f64>,
    /// By which the best model is kept; see [`Learner::is_better`]. NaN is never the best.
    pub score: f64,
}

/// Where a learner is in its epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epochs {
    /// Which one is running, counted from 1; at its end the one that is over.
    pub running: u64,
    /// How many there are to be, if that is how the end is known.
    pub total: Option<u64>,
    /// How many are done.
    pub done: u64,
    /// How much of the next one is done, from 0 to 1; 0 where that is unknown.
    pub part: f64,
    /// Steps in all of them, if that is known.
    pub steps: Option<u64>,
    /// Examples that this process has learnt from.
    pub examples: u64,
    /// The learning rate now.
    pub learning_rate: f64,
}

/// Loss and metrics of an epoch so far.
pub trait Figures: std::fmt::Debug {
    /// The mean loss; NaN of nothing.
    fn loss(&self) -> f64;

    /// The metrics.
    fn values(&self) -> Vec<f64>;

    /// A value of a metric, with its name, as one reads it.
    fn shown(&self, metric: usize, value: f64) -> Option<String>;
}

/// What callbacks can see of a step.
#[derive(Clone, Copy, Default)]
pub struct LastStep<'a> {
    /// The model, of whatever type: [`Progress::model`](crate::Progress::model).
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
