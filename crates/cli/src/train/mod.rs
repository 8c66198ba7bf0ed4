//! `polygrad train`: from options and data to a run.

pub(crate) mod learner;
mod optimizer;
mod position;
mod session;
mod settings;
#[cfg(test)]
mod settings_tests;
mod state;

use std::path::Path;

use polygrad::Device;

use crate::args::{Data, Train};
use crate::backend;
use crate::data::files::Dataset;
use crate::data::source::{Places, Request};
use crate::failure::{Failure, Result, Shown};
use crate::feed::statistics;
use crate::interrupt::Interrupt;
use crate::outcome::Outcome;
use crate::progress::{grouped, say, short};
use crate::run::Claim;
use crate::run::config::{self, Config, Input, name};

use session::Session;
use state::State;

/// Trains a new model, or goes on with a run.
///
/// # Errors
/// Everything that options, data, devices and disks can do wrong.
pub(crate) fn command(args: &Train) -> Result<Outcome> {
    match &args.resume {
        Some(path) => resume(args, path),
        None => start(args),
    }
}

fn start(args: &Train) -> Result<Outcome> {
    let (mut config, device, data) = prepare(args)?;
    config.run = config::fresh_name();
    let claim = Claim::new_run(
        args.out.as_deref(),
        &format!("{}-{}", config.dataset, name(config.model)),
    )?;
    introduce(&config, &data, &device);
    let interrupt = Interrupt::install()?;
    Session::start(config, claim, &data, &device)?.run(&interrupt)
}

/// The settings of a new run, its device and its data.
///
/// # Errors
/// Everything that options, data and devices can do wrong.
pub(crate) fn prepare(args: &Train) -> Result<(Config, Device, Dataset)> {
    let mut config = settings::new(args)?;
    let device = backend::open(&config.backend, config.threads)?;
    let data = load(&config)?;
    (config.input, config.classes) = describe(&data)?;
    config.check().map_err(|what| {
        Failure::new(format!("cannot train with these settings: {what}")).fix("give other options, or other data")
    })?;
    Ok((config, device, data))
}

fn resume(args: &Train, path: &Path) -> Result<Outcome> {
    let claim = Claim::of_run(path)?;
    let state = State::load(&claim)?;
    let stored = state.settings(&claim)?;
    let config = settings::resumed(args, &stored, path)?;
    let device = backend::open(&config.backend, config.threads)?;
    let data = load(&config)?;
    let found = describe(&data)?;
    if found != (stored.input, stored.classes.clone()) {
        return Err(Failure::new(format!(
            "these are not the images that {} was trained on: their number, size, brightness or classes differ",
            path.shown()
        ))
        .fix("say with --data or --full where those images are now, or start a new run"));
    }
    introduce(&config, &data, &device);
    for change in settings::changes(&stored, &config) {
        say(&change);
    }
    let interrupt = Interrupt::install()?;
    Session::resume(config, claim, state, &data, &device)?.run(&interrupt)
}

fn load(config: &Config) -> Result<Dataset> {
    let request = Request {
        dataset: &config.dataset,
        folder: config.data.as_deref(),
        full: config.full,
    };
    Places::of_this_machine().locate(request)?.load(&config.dataset)
}

/// What the settings say about the data.
fn describe(data: &Dataset) -> Result<(Input, Vec<String>)> {
    let images = &data.train.images;
    let (mean, std) = statistics(images)?;
    let input = Input {
        channels: images.channels,
        rows: images.rows,
        cols: images.cols,
        mean,
        std,
    };
    Ok((input, data.classes.clone()))
}

/// Says what is trained on what.
pub(crate) fn introduce(config: &Config, data: &Dataset, device: &Device) {
    say(&format!(
        "{}: {} training and {} test images of {} × {}, {} classes",
        config.dataset,
        grouped(data.train.labels.len() as u64),
        grouped(data.test.labels.len() as u64),
        config.input.rows,
        config.input.cols,
        config.classes.len()
    ));
    say(&format!(
        "{} with {}, batches of {}, learning rate {}, on {device}",
        name(config.model),
        name(config.optimizer),
        config.batch_size,
        short(config.lr)
    ));
}

/// Where the user says the data are, as settings.
fn place(data: &Data) -> Result<Option<std::path::PathBuf>> {
    let absolute = |folder: &std::path::PathBuf| {
        folder
            .canonicalize()
            .map_err(|e| Failure::io("read the folder", folder, &e))
    };
    data.folder.as_ref().map(absolute).transpose()
}
