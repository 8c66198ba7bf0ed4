//! Models left by runs.

use std::path::Path;

use polygrad::nn::files::{SafetensorsHeader, in_file};
use polygrad::nn::{Module, open_file, skip_init};
use polygrad::{Device, ErrorKind};

use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::run::{self, config, resume_command};
use crate::task::RunSettings;
use crate::train::resumed::foreign;

/// A trained model on a device.
pub(crate) struct Trained<T: RunSettings> {
    /// The settings of its run.
    pub(crate) config: T,
    /// Where it is.
    pub(crate) device: Device,
    /// The model, in evaluation mode.
    pub(crate) model: T::Model,
}

/// Loads the model of the run in `path` to the device given by `device` and `threads`, by default that of its training.
///
/// # Errors
/// No run, or one of another kind, no model, files that are damaged or do not fit together; errors of the device.
pub(crate) fn load<T: RunSettings>(path: &Path, device: Option<&str>, threads: Option<usize>) -> Result<Trained<T>> {
    let folder = run::open(path)?;
    let config: T = config::load(&folder.config())?;
    let base = config.base();
    let device = match device {
        Some(device) => backend::open(device, threads)?,
        None => backend::open(&base.backend, threads.or(base.threads))?,
    };
    let file = config.file(&folder);
    if !file.exists() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        return Err(Failure::new(format!("{} has no {name} yet", path.shown())).fix(format!(
            "train it, at least to the end of an epoch: {}",
            resume_command(&folder)
        )));
    }
    let (bytes, length) = open_file(&file)?;
    let header = SafetensorsHeader::read(bytes, length).map_err(|e| in_file(e, "read", &file))?;
    let foreign = foreign(&config, &header.metadata);
    if !foreign.is_empty() {
        return Err(Failure::new(format!(
            "{} was not trained with the settings in {}: {} differ",
            file.shown(),
            folder.config().shown(),
            foreign.join(", ")
        ))
        .fix("take config.json and model.safetensors from the same run"));
    }
    let model = skip_init(|| config.model(&device))?;
    model.load(&file).map_err(|error| match error.kind() {
        ErrorKind::StateDict => Failure::from(error).fix("take config.json and model.safetensors from the same run"),
        _ => error.into(),
    })?;
    if config::load::<T>(&folder.config())?.base().run != base.run {
        return Err(
            Failure::new(format!("{} became another run while it was read", path.shown())).fix("try once more"),
        );
    }
    model.eval();
    Ok(Trained { config, device, model })
}
