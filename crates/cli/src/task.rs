//! What a kind of run has of its own; all else is the same for every run.

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
    /// What learns.
    type Model: Module + 'static;

    /// Which kind this is.
    const KIND: Kind;
    /// The settings that may change while a run is stopped, those of every run aside: where the data are, and how long
    /// it is.
    const MAY_CHANGE: &'static [&'static str];

    /// The settings that every run has.
    fn base(&self) -> &Base;
    fn base_mut(&mut self) -> &mut Base;

    /// Fails unless every setting is one with which a run can be trained, written and read again; those of every run
    /// aside.
    ///
    /// # Errors
    /// The first such setting, with its bounds.
    fn check(&self) -> std::result::Result<(), String>;

    /// Which of the models in the folder of a run is the one that it has learnt. Default: the last one.
    fn file(&self, folder: &RunFolder) -> PathBuf {
        folder.model()
    }

    /// A new model with weights from this thread's generator.
    ///
    /// # Errors
    /// Data that are too small for it, or a device that fails.
    fn model(&self, device: &Device) -> Result<Self::Model>;
}

/// What training has of its own for each kind of run.
pub(crate) trait Task: RunSettings {
    /// The options on the command line.
    type Args: RunArgs;
    /// What is learnt from, in memory.
    type Data;

    /// What learns: a model, a policy.
    const LEARNS: &'static str;

    /// Those of a new run; what depends on the data is still empty.
    ///
    /// # Errors
    /// Options that make no sense, or a place that is not there.
    fn new(args: &Self::Args) -> Result<Self>;

    /// Those with which the run in `run` goes on.
    ///
    /// # Errors
    /// Options that ask for something else than the run has; a place that is not there.
    fn resumed(&self, args: &Self::Args, run: &Path) -> Result<Self>;

    /// What differs from the settings with which the run began, a line each.
    fn changes(&self, before: &Self) -> Vec<String>;

    /// The parts of the name of the run.
    fn title(&self) -> Vec<String>;

    /// The data of a run, new or old.
    ///
    /// # Errors
    /// Data that cannot be found or read.
    fn load(&self) -> Result<Self::Data>;

    /// Fills in what depends on the data.
    ///
    /// # Errors
    /// Data that nothing can be learnt from.
    fn describe(&mut self, data: &Self::Data) -> Result<()>;

    /// Says that the data, which give the settings `found`, are not those that the run in `path` began with.
    fn other_data(&self, found: &Self, path: &Path) -> Failure;

    /// Trains to the end, or until Ctrl-C.
    ///
    /// # Errors
    /// A loss that is no number; a checkpoint that does not fit; those of the device and the disk. The last checkpoint
    /// then still is there.
    fn train(&self, data: &Self::Data, device: &Device, session: Session<'_>) -> Result<Trained>;

    /// What is measured beside the loss, as `metrics.csv` calls it.
    ///
    /// # Errors
    /// What keeps it from being known; those of the device.
    #[cfg_attr(not(feature = "sweep"), expect(dead_code))]
    fn metrics(&self, device: &Device) -> Result<Vec<String>>;

    /// How long it trains, as the column `epoch` of `metrics.csv` counts.
    #[cfg_attr(not(feature = "sweep"), expect(dead_code))]
    fn length(&self) -> f64;

    /// The commands to try on the run in `path`.
    fn next(&self, path: &str) -> Vec<String>;
}

/// What training on examples, epoch after epoch, has of its own for each kind of run.
pub(crate) trait Batches: Task {
    /// The options that all training on examples has.
    fn examples(args: &Self::Args) -> &Examples;

    /// What the data are called that the model is judged by.
    const JUDGED_BY: &'static str;

    /// Takes the options that a run may go on with, and tells `fixed` of all others; those of every run aside.
    ///
    /// # Errors
    /// A place that is not there.
    fn resume(&mut self, args: &Self::Args, fixed: &mut Fixed) -> Result<()>;

    /// The settings that all training on examples has.
    fn training(&self) -> &Training;
    fn training_mut(&mut self) -> &mut Training;

    /// What the data set is called on the command line.
    fn dataset(&self) -> &str;
    /// Where the data are.
    fn place(&self) -> String;

    /// The data to train on, and those to judge by.
    ///
    /// # Errors
    /// Settings that make no sense; too few data.
    fn loaders(&self, data: &Self::Data, device: &Device) -> Result<(DataLoader<Batch>, DataLoader<Batch>)>;

    /// Says what is trained on what.
    fn about(&self, data: &Self::Data, model: &Self::Model, device: &Device) -> Vec<String>;

    /// Finds the ranges that a new model which is trained for 8 bits begins with, from its training data, and says
    /// how many steps it has. Kinds of runs without such training need none.
    ///
    /// # Errors
    /// Those of the data and of the device.
    fn calibrate(&self, _model: &Self::Model, _batches: &DataLoader<Batch>, _steps: u64) -> Result<()> {
        Ok(())
    }

    /// How `model` is trained by `team`, which takes so many steps; the rest is in `options`.
    ///
    /// # Errors
    /// Those of the device.
    fn trainer(
        &self,
        model: Self::Model,
        steps: u64,
        options: TrainerConfig,
        team: &Team,
    ) -> Result<Trainer<Self::Model, Batch>>;

    /// What the last evaluation found.
    fn result(&self, last: &Row) -> String;
}
