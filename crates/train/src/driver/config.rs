//! Options of a run, whatever learns in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::Value;

use super::{Callback, Driver, Learner, Summary};
use crate::Run;

/// When training ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Epochs(u64),
    Steps(u64),
}

/// Options of a run: its length, its folder, rows and checkpoints, callbacks, stopping, and the other processes. `O` is
/// what else can be chosen for what learns: nothing for a [`Learner`], much for a [`Trainer`](crate::Trainer), whose
/// options are a
/// [`TrainerConfig`](crate::TrainerConfig).
///
/// What concerns batches, such as their accumulation, is no option of a learner, which knows itself how it learns:
///
/// ```compile_fail
/// # use polygrad_train::{Learner, RunConfig};
/// # fn accumulated(learner: &mut dyn Learner) {
/// RunConfig::steps(100).accumulate(2).train(learner);
/// # }
/// ```
pub struct RunConfig<O = ()> {
    pub(crate) run: RunOptions,
    pub(crate) own: O,
}

/// What every run has.
pub(crate) struct RunOptions {
    pub(crate) length: Length,
    pub(crate) log_every: Option<u64>,
    pub(crate) checkpoint_every: Option<u64>,
    pub(crate) run: Option<Run>,
    pub(crate) settings: Value,
    /// The settings as text.
    pub(crate) config: String,
    pub(crate) model_metadata: BTreeMap<String, String>,
    pub(crate) validation: String,
    pub(crate) callbacks: Vec<Box<dyn Callback>>,
    pub(crate) stop: Option<Arc<AtomicBool>>,
    pub(crate) communicator: Option<Arc<dyn Communicator>>,
}

impl<O: Default> RunConfig<O> {
    /// Trains for so many steps: of the optimizer, over as many epochs as they take, or of the learner's own kind.
    pub fn steps(steps: u64) -> Self {
        Self::new(Length::Steps(steps))
    }

    pub(crate) fn new(length: Length) -> Self {
        Self {
            run: RunOptions {
                length,
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
            },
            own: O::default(),
        }
    }
}

impl<O> RunConfig<O> {
    /// Adds a row of training measurements after so many steps, and at the end of each epoch. Default: a tenth of an
    /// epoch, or 100 steps where its length is unknown; of a [`Learner`] without epochs a 200th of the steps.
    #[must_use]
    pub fn log_every(mut self, steps: u64) -> Self {
        self.run.log_every = Some(steps);
        self
    }

    /// Writes the checkpoint after so many steps, too. Default: after each epoch alone; of a [`Learner`] without epochs
    /// 20 times.
    #[must_use]
    pub fn checkpoint_every(mut self, steps: u64) -> Self {
        self.run.checkpoint_every = Some(steps);
        self
    }

    /// Leaves the model, its checkpoint, and all measurements in a folder, and goes on from the checkpoint that is
    /// there.
    #[must_use]
    pub fn run(mut self, run: Run) -> Self {
        self.run.run = Some(run);
        self
    }

    /// What `config.json` in the run folder says, and the checkpoint too: options of the program, such as sizes of the
    /// model. A run that goes on takes the new ones; [`RunFolder::settings`](crate::RunFolder::settings) has those that
    /// it began with. Default: nothing.
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
        self.run.settings = serde_json::to_value(settings).map_err(unwritable)?;
        // In the order of the fields, which a value does not keep.
        self.run.config = serde_json::to_string_pretty(settings).map_err(unwritable)? + "\n";
        Ok(self)
    }

    /// Texts by name in the headers of the model's files, such as what it was made by. Default: none.
    #[must_use]
    pub fn model_metadata(mut self, metadata: BTreeMap<String, String>) -> Self {
        self.run.model_metadata = metadata;
        self
    }

    /// What the data of evaluations are called in files. Default: `validation`.
    #[must_use]
    pub fn validation_name(mut self, name: &str) -> Self {
        self.run.validation = name.to_owned();
        self
    }

    /// Is told of everything that happens.
    #[must_use]
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.run.callbacks.push(Box::new(callback));
        self
    }

    /// Stops after the step during which the flag was set, leaving a checkpoint: for signal handlers.
    #[must_use]
    pub fn stop_flag(mut self, flag: Arc<AtomicBool>) -> Self {
        self.run.stop = Some(flag);
        self
    }

    /// Trains together with the other processes of a group. A [`Learner`] has to be one of the same group, and says
    /// itself what each of them does.
    ///
    /// A [`Trainer`](crate::Trainer) takes a part of every batch: with `n` processes a step sees `n` times the batch
    /// size. Gradients, losses and metrics are those of the joined batch, the loss being a mean over examples; layers
    /// that mix examples, such as batch normalisation, see this process's part alone, and their buffers are those of
    /// rank 0, unless they are
    /// [synchronized](polygrad_nn::sync_batch_norm).
    /// Every process makes the same model of the same seed, the same loaders, and the same options; that is checked
    /// when training begins. Random numbers of the training are others on every rank.
    ///
    /// Rank 0 alone keeps a [run](RunConfig::run), whose checkpoint is an ordinary one: any number of processes goes on
    /// from it. Whoever is asked to stop stops all, after the next step.
    ///
    /// Where a rank is lost and the engine can go on without it ([`Communicator::shrink`]), those who are left take the
    /// state of the one that has come furthest, and go on from the last step. Where a part of the state is lost with
    /// it, such as
    /// [spread](crate::ShardedOptimizer) moments, all go back to the last checkpoint of the run. Rank 0 of those who
    /// are left takes over the run.
    #[must_use]
    pub fn parallel(mut self, communicator: Arc<dyn Communicator>) -> Self {
        self.run.communicator = Some(communicator);
        self
    }
}

impl RunConfig {
    /// Trains something that learns by itself, to the [steps](RunConfig::steps) or to its own end, or goes on to it
    /// from where the run stands.
    ///
    /// Rows are means of what was measured since the row before, and [`Row::step`](crate::Row::step) and
    /// [`Row::epoch`](crate::Row::epoch) both the learner's steps, where it says nothing else. The model of the best
    /// [score](Learner::score) at a checkpoint is kept as that.
    ///
    /// # Errors
    /// A group that is not the learner's; those of the learner, of callbacks, of the disk and of the other ranks. The
    /// last checkpoint then still is there.
    pub fn train(self, learner: &mut dyn Learner) -> Result<Summary> {
        let options = self.run.checked()?;
        let is_one_of_it = match (options.group()?, learner.communicator()) {
            (None, None) => true,
            (Some(group), Some(own)) => Arc::ptr_eq(group, own),
            _ => false,
        };
        if !is_one_of_it {
            return Err(
                Error::invalid("the learner is not one of the ranks that the trainer is one of")
                    .with_op("Trainer")
                    .with_hint("give both the same group, the trainer by RunConfig::parallel"),
            );
        }
        Driver::new(options).run(learner)
    }
}

impl RunOptions {
    /// The processes that train together, one of which at most keeps a run.
    pub(crate) fn group(&self) -> Result<Option<&Arc<dyn Communicator>>> {
        match &self.communicator {
            Some(communicator) if communicator.rank() > 0 && self.run.is_some() => {
                let message = format!("rank {} has a run, which rank 0 alone keeps", communicator.rank());
                Err(Error::invalid(message).with_op("Trainer"))
            }
            group => Ok(group.as_ref()),
        }
    }

    pub(crate) fn checked(self) -> Result<Self> {
        at_least_one(&[
            ("epochs", self.length == Length::Epochs(0)),
            ("steps", self.length == Length::Steps(0)),
            ("log_every", self.log_every == Some(0)),
            ("checkpoint_every", self.checkpoint_every == Some(0)),
        ])?;
        Ok(self)
    }
}

/// Fails with the first option that is 0.
pub(crate) fn at_least_one(options: &[(&str, bool)]) -> Result<()> {
    match options.iter().find(|(_, is_zero)| *is_zero) {
        Some((name, _)) => Err(Error::invalid(format!("{name} is at least 1")).with_op("Trainer")),
        None => Ok(()),
    }
}

impl<O: std::fmt::Debug> std::fmt::Debug for RunConfig<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunConfig")
            .field("length", &self.run.length)
            .field("run", &self.run.run)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
