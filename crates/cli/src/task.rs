//! Interfaces of the kinds of runs; everything else is common to all runs.

use std::path::{Path, PathBuf};

use polygrad::data::DataLoader;
use polygrad::nn::Module;
use polygrad::train::{Row, RunFolder, Trainer, TrainerConfig};
use polygrad::{Device, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::Examples;
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::run::config::{Base, Training};
use crate::team::Team;
use crate::train::line::RunArgs;
use crate::train::resumed::Fixed;
use crate::train::session::{Session, Trained};

/// Inputs and targets.
pub(crate) type Batch = (Tensor, Tensor);

/// The settings of a run of one kind, as `config.json` has them, and the model that they describe.
pub(crate) trait RunSettings: Serialize + DeserializeOwned + Clone + PartialEq {
    /// The model that learns.
    type Model: Module + 'static;

    /// The kind of these runs.
    const KIND: Kind;
    /// The settings that may change while a run is stopped, beside those in [`Base`]: the location of the data, and the
    /// length.
    const MAY_CHANGE: &'static [&'static str];

    /// The settings common to all runs.
    fn base(&self) -> &Base;
    fn base_mut(&mut self) -> &mut Base;

    /// Fails unless a run with these settings, except those common to all runs, can be trained, written and read again.
    ///
    /// # Errors
    /// The first invalid setting, with its bounds.
    fn check(&self) -> std::result::Result<(), String>;

    /// The file of the learned model among those in the run folder. Default: the last one.
    fn file(&self, folder: &RunFolder) -> PathBuf {
        folder.model()
    }

    /// A new model with weights from this thread's generator.
    ///
    /// # Errors
    /// Data that are too small for it, or a device that fails.
    fn model(&self, device: &Device) -> Result<Self::Model>;
}

/// The parts of training that are specific to a kind of run.
pub(crate) trait Task: RunSettings {
    /// The options on the command line.
    type Args: RunArgs;
    /// The training data, in memory.
    type Data;

    /// The word for what learns: a model, a policy.
    const LEARNS: &'static str;

    /// The settings of a new run. Those that depend on the data are still empty.
    ///
    /// # Errors
    /// Invalid options, or a path that does not exist.
    fn new(args: &Self::Args) -> Result<Self>;

    /// The settings with which the run in `run` continues.
    ///
    /// # Errors
    /// Options that differ from the run's settings; a path that does not exist.
    fn resumed(&self, args: &Self::Args, run: &Path) -> Result<Self>;

    /// The differences from the settings with which the run began, a line for each.
    fn changes(&self, before: &Self) -> Vec<String>;

    /// The parts of the name of the run.
    fn title(&self) -> Vec<String>;

    /// The data of a run, new or old.
    ///
    /// # Errors
    /// Data that are missing or cannot be read.
    fn load(&self) -> Result<Self::Data>;

    /// Fills in the settings that depend on the data.
    ///
    /// # Errors
    /// Data that are unsuitable for learning.
    fn describe(&mut self, data: &Self::Data) -> Result<()>;

    /// The error that the data, which result in the settings `found`, are not those that the run in `path` began with.
    fn other_data(&self, found: &Self, path: &Path) -> Failure;

    /// Trains to the end, or until Ctrl-C.
    ///
    /// # Errors
    /// A loss that is not finite; a checkpoint that does not fit; errors of the device and the disk. The last
    /// checkpoint is kept.
    fn train(&self, data: &Self::Data, device: &Device, session: Session<'_>) -> Result<Trained>;

    /// The names in `metrics.csv` of the metrics beside the loss.
    ///
    /// # Errors
    /// Settings for which they cannot be determined; errors of the device.
    #[cfg_attr(not(feature = "sweep"), expect(dead_code))]
    fn metrics(&self, device: &Device) -> Result<Vec<String>>;

    /// The length of training, in units of the column `epoch` of `metrics.csv`.
    #[cfg_attr(not(feature = "sweep"), expect(dead_code))]
    fn length(&self) -> f64;

    /// Suggested next commands for the run in `path`.
    fn next(&self, path: &str) -> Vec<String>;
}

/// The methods of [`RunSettings`], [`Task`] and [`Batches`] that are the same for all kinds of runs on examples, whose
/// settings and options have the fields `training` and `examples`.
macro_rules! of_examples {
    (RunSettings) => {
        fn base(&self) -> &$crate::run::config::Base {
            &self.training.base
        }

        fn base_mut(&mut self) -> &mut $crate::run::config::Base {
            &mut self.training.base
        }
    };
    (Task) => {
        const LEARNS: &'static str = "model";

        fn resumed(&self, args: &Self::Args, run: &std::path::Path) -> $crate::failure::Result<Self> {
            $crate::train::resumed::settings(self, args, run)
        }

        fn changes(&self, before: &Self) -> Vec<String> {
            $crate::train::resumed::changes(before, self)
        }

        fn length(&self) -> f64 {
            self.training.epochs as f64
        }
    };
    (Batches) => {
        fn examples(args: &Self::Args) -> &$crate::args::Examples {
            &args.examples
        }

        fn training(&self) -> &$crate::run::config::Training {
            &self.training
        }

        fn training_mut(&mut self) -> &mut $crate::run::config::Training {
            &mut self.training
        }
    };
}
pub(crate) use of_examples;

/// The parts of training on examples, epoch after epoch, that are specific to a kind of run.
pub(crate) trait Batches: Task {
    /// The options common to all training on examples.
    fn examples(args: &Self::Args) -> &Examples;

    /// The name of the validation data.
    const JUDGED_BY: &'static str;

    /// Applies the options that a continued run may change, and reports all others to `fixed`. Options common to all
    /// runs are handled elsewhere.
    ///
    /// # Errors
    /// A path that does not exist.
    fn resume(&mut self, args: &Self::Args, fixed: &mut Fixed) -> Result<()>;

    /// The settings common to all training on examples.
    fn training(&self) -> &Training;
    fn training_mut(&mut self) -> &mut Training;

    /// The name of the data set on the command line.
    fn dataset(&self) -> &str;
    /// The location of the data.
    fn place(&self) -> String;

    /// The training and the validation data.
    ///
    /// # Errors
    /// Invalid settings; too few data.
    fn loaders(&self, data: &Self::Data, device: &Device) -> Result<(DataLoader<Batch>, DataLoader<Batch>)>;

    /// Describes what is trained on which data.
    fn about(&self, data: &Self::Data, model: &Self::Model, device: &Device) -> Vec<String>;

    /// Finds the initial ranges of a new model in training for 8 bits, from its training data, and tells it the number
    /// of steps. Kinds of runs without such training do nothing.
    ///
    /// # Errors
    /// Errors of the data and of the device.
    fn calibrate(&self, _model: &Self::Model, _batches: &DataLoader<Batch>, _steps: u64) -> Result<()> {
        Ok(())
    }

    /// The trainer of `model` for `team` and this many steps. `options` has the rest.
    ///
    /// # Errors
    /// Errors of the device.
    fn trainer(
        &self,
        model: Self::Model,
        steps: u64,
        options: TrainerConfig,
        team: &Team,
    ) -> Result<Trainer<Self::Model, Batch>>;

    /// The result of the last evaluation, in words.
    fn result(&self, last: &Row) -> String;
}
