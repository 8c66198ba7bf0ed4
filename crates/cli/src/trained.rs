//! A model that a run has left.

use std::path::Path;

use polygrad::nn::{Module, Sequential, skip_init};
use polygrad::{Device, ErrorKind};

use crate::failure::{Failure, Result, Shown};
use crate::run::config::Config;
use crate::run::{self, resume_command};
use crate::{backend, model};

/// A trained model on a device.
pub(crate) struct Trained {
    /// The settings of its run.
    pub(crate) config: Config,
    /// Where it is.
    pub(crate) device: Device,
    /// The model, in evaluation mode.
    pub(crate) model: Sequential,
}

/// Loads the model of the run in `path`, to the device that `device` and `threads` name, by default that of its training.
///
/// # Errors
/// No run, no model, files that are damaged or do not fit together; those of the device.
pub(crate) fn load(path: &Path, device: Option<&str>, threads: Option<usize>) -> Result<Trained> {
    let folder = run::open(path)?;
    let config = Config::load(&folder.config())?;
    let device = match device {
        Some(device) => backend::open(device, threads)?,
        None => backend::open(&config.backend, threads.or(config.threads))?,
    };
    let file = folder.model();
    if !file.exists() {
        return Err(
            Failure::new(format!("{} has no model.safetensors yet", path.shown())).fix(format!(
                "train it, at least to the end of an epoch: {}",
                resume_command(&folder)
            )),
        );
    }
    let model = skip_init(|| model::build(config.model, &config.input, config.classes.len(), &device))?;
    model.load(&file).map_err(|error| match error.kind() {
        ErrorKind::StateDict => Failure::from(error).fix("take config.json and model.safetensors from the same run"),
        _ => error.into(),
    })?;
    if Config::load(&folder.config())?.run != config.run {
        return Err(
            Failure::new(format!("{} became another run while it was read", path.shown())).fix("try once more"),
        );
    }
    model.eval();
    Ok(Trained { config, device, model })
}
