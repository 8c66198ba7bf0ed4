//! Options of a run, for any learner.

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

/// Options of a run: its length, its folder, rows and checkpoints, callbacks, stopping, and the other processes. `O`
/// are further options of the learner: none for a [`Learner`], many for a [`Trainer`](crate::Trainer), whose options
/// are a [`TrainerConfig`](crate::TrainerConfig).
///
/// Options about batches, such as gradient accumulation, do not exist for a learner, which decides itself how it
/// learns:
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

/// Options of every run.
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
    /// Trains for `steps` steps: optimizer steps over as many epochs as needed, or steps as the learner counts them.
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
    /// Adds a row of training measurements every `steps` steps, and at the end of each epoch. Default: a tenth of an
    /// epoch, or 100 steps if its length is unknown; for a [`Learner`] without epochs a 200th of the steps.
    #[must_use]
    pub fn log_every(mut self, steps: u64) -> Self {
        self.run.log_every = Some(steps);
        self
    }

    /// Also writes the checkpoint every `steps` steps. Default: only after each epoch; for a [`Learner`] without epochs
    /// 20 times, and after each step of more than a second if it [can leave](Learner::watch) the next one.
    #[must_use]
    pub fn checkpoint_every(mut self, steps: u64) -> Self {
        self.run.checkpoint_every = Some(steps);
        self
    }

    /// Keeps the model, its checkpoint, and all measurements in a folder, and continues from an existing checkpoint
    /// there.
    #[must_use]
    pub fn run(mut self, run: Run) -> Self {
        self.run.run = Some(run);
        self
    }

    /// The content of the run folder's `config.json`, also stored in the checkpoint: options of the program, such as
    /// sizes of the model. A resumed run uses the new ones; [`RunFolder::settings`](crate::RunFolder::settings) has
    /// those that it began with. Default: nothing.
    ///
    /// # Errors
    /// Values that JSON cannot represent.
    pub fn settings(mut self, settings: &impl Serialize) -> Result<Self> {
        let unwritable = |e| {
            Error::new(
                ErrorKind::Format,
                format!("these settings cannot be written as JSON: {e}"),
            )
        };
        self.run.settings = serde_json::to_value(settings).map_err(unwritable)?;
        // Serialized directly, since a `Value` does not keep the order of the fields.
        self.run.config = serde_json::to_string_pretty(settings).map_err(unwritable)? + "\n";
        Ok(self)
    }

    /// Texts by name in the headers of the model's files, such as the program that made it. Default: none.
    #[must_use]
    pub fn model_metadata(mut self, metadata: BTreeMap<String, String>) -> Self {
        self.run.model_metadata = metadata;
        self
    }

    /// Name of the evaluation data in files. Default: `validation`.
    #[must_use]
    pub fn validation_name(mut self, name: &str) -> Self {
        self.run.validation = name.to_owned();
        self
    }

    /// Adds a callback, which is called with every event.
    #[must_use]
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.run.callbacks.push(Box::new(callback));
        self
    }

    /// Stops after the step during which the flag was set, with a checkpoint: for signal handlers. A learner [may
    /// leave](Learner::watch) a long step unfinished.
    #[must_use]
    pub fn stop_flag(mut self, flag: Arc<AtomicBool>) -> Self {
        self.run.stop = Some(flag);
        self
    }

    /// Trains together with the other processes of a group. A [`Learner`] has to belong to the same group, and decides
    /// itself what each process does.
    ///
    /// A [`Trainer`](crate::Trainer) splits every batch: with `n` processes a step uses `n` times the batch size.
    /// Gradients, losses and metrics are those of the joined batch, with the loss a mean over examples. Layers that mix
    /// examples, such as batch normalisation, see only this process's part, and their buffers are those of rank 0,
    /// unless they are [synchronized](polygrad_nn::sync_batch_norm).
    /// Every process must create the same model from the same seed, the same loaders, and the same options; this is
    /// checked when training begins. Random numbers during training differ between ranks.
    ///
    /// Only rank 0 keeps a [run](RunConfig::run). Its checkpoint is an ordinary one, from which any number of processes
    /// can continue. If any process is asked to stop, all stop after the next step.
    ///
    /// If a rank is lost and the engine can continue without it ([`Communicator::shrink`]), the remaining ranks take
    /// the state of the most advanced of them, and continue from the last step. If a part of the state is lost with the
    /// rank, such as [sharded](crate::ShardedOptimizer) moments, all go back to the last checkpoint of the run. The new
    /// rank 0 takes over the run.
    #[must_use]
    pub fn parallel(mut self, communicator: Arc<dyn Communicator>) -> Self {
        self.run.communicator = Some(communicator);
        self
    }
}

impl RunConfig {
    /// Trains a learner to the given number of [steps](RunConfig::steps) or until it is done, beginning or resuming the
    /// run.
    ///
    /// Rows are means of the measurements since the row before. [`Row::step`](crate::Row::step) and
    /// [`Row::epoch`](crate::Row::epoch) are both the learner's steps unless it defines epochs. The model with the best
    /// [score](Learner::score) at a checkpoint is kept as the best model.
    ///
    /// # Errors
    /// A group other than the learner's; errors of the learner, of callbacks, of the disk and of the other ranks. The
    /// last checkpoint is then still there.
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
    /// The group of processes that train together, of which at most one keeps a run.
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
