//! `polygrad train`: from options and data to a run.

pub(crate) mod learner;
mod optimizer;
mod session;
pub(crate) mod settings;
#[cfg(test)]
mod settings_tests;
mod state;

use std::error::Error as _;
use std::path::{Path, PathBuf};

use polygrad::train::{NonFiniteLoss, Run, RunFolder};
use polygrad::{Device, ErrorKind};

use crate::args::{Data, Train};
use crate::backend;
use crate::chargpt;
use crate::data::files::Dataset;
use crate::data::folder;
use crate::data::source::{Places, Request};
use crate::failure::{Failure, Result, Shown};
use crate::interrupt::Interrupt;
use crate::loaders::statistics;
use crate::outcome::Outcome;
use crate::progress::{grouped, say, short};
use crate::run::config::{self, Config, Input, name};
use crate::run::resume_command;

/// Trains a new model, or goes on with a run.
///
/// # Errors
/// Everything that options, data, devices and disks can do wrong.
pub(crate) fn command(args: &Train) -> Result<Outcome> {
    match &args.resume {
        Some(path) if chargpt::is_one(&RunFolder::new(path)) => chargpt::resume(args, path),
        Some(path) => resume(args, path),
        None if args.dataset.as_deref() == Some(chargpt::NAME) => chargpt::start(args),
        None => start(args),
    }
}

fn start(args: &Train) -> Result<Outcome> {
    let (mut config, device, data) = prepare(args)?;
    config.run = config::fresh_name();
    let run = match &args.out {
        Some(out) => Run::create(out).map_err(|error| occupied(error, out))?,
        None => Run::create_next("runs", &format!("{}-{}", config.dataset, name(config.model)))?,
    };
    introduce(&config, &data, &device);
    let interrupt = Interrupt::install()?;
    session::run(&config, run, &data, &device, &interrupt)
}

/// A folder that a new run cannot have.
pub(crate) fn occupied(error: polygrad::Error, out: &Path) -> Failure {
    let failure = Failure::from(error);
    match RunFolder::new(out) {
        folder if folder.checkpoint().exists() => failure.fix(format!(
            "choose another folder with --out, or go on with this run: {}",
            resume_command(&folder)
        )),
        _ => failure,
    }
}

/// Why training has failed, and what to do about it.
pub(crate) fn explained(error: polygrad::Error, run: Option<&Run>, lr: f64) -> Failure {
    if error.source().is_some_and(|source| source.is::<NonFiniteLoss>()) {
        return Failure::from(error).fix(format!("start a new run with an --lr below {}", short(lr)));
    }
    // One that did not begin leaves nothing to go on with.
    let Some(run) = run.filter(|run| run.checkpoint().exists()) else {
        return error.into();
    };
    match (run.check(), error.kind()) {
        (Err(lost), _) => Failure::from(lost)
            .fix("bring the folder back and go on from its last checkpoint with --resume, or start a new run"),
        (_, ErrorKind::Io) => {
            Failure::from(error).then(&format!("go on from the last checkpoint: {}", resume_command(run)))
        }
        _ => error.into(),
    }
}

/// A folder that there is no run in to go on with.
fn unbegun(error: polygrad::Error, path: &Path) -> Failure {
    let (folder, failure) = (RunFolder::new(path), Failure::from(error));
    let has_begun = folder.checkpoint().exists() || folder.config().is_file();
    match !has_begun && path.join("run.lock").is_file() {
        true => failure.fix(format!(
            "the run there was ended before it began: start it anew, with --out {}",
            path.shown()
        )),
        false => failure,
    }
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
    let run = Run::resume(path).map_err(|error| unbegun(error, path))?;
    let stored = state::settings(&run)?;
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
    session::run(&config, run, &data, &device, &interrupt)
}

/// The data of a run, new or old.
///
/// # Errors
/// Data that cannot be found or read.
fn load(config: &Config) -> Result<Dataset> {
    if let (settings::IMAGES, Some(folder)) = (config.dataset.as_str(), &config.data) {
        return folder::load(folder, config.input.rows, config.seed);
    }
    let request = Request {
        dataset: &config.dataset,
        folder: config.data.as_deref(),
        full: config.full,
    };
    Places::of_this_machine().locate(request)?.load(&config.dataset)
}

/// What the settings say about the data.
fn describe(data: &Dataset) -> Result<(Input, Vec<String>)> {
    let [channels, rows, cols] = data.train.shape;
    let (mean, std) = statistics(&data.train)?;
    let input = Input {
        channels,
        rows,
        cols,
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
fn place(data: &Data) -> Result<Option<PathBuf>> {
    data.folder.as_deref().map(absolute).transpose()
}

/// A folder that is there, so that it is found from anywhere.
fn absolute(folder: &Path) -> Result<PathBuf> {
    folder
        .canonicalize()
        .map_err(|e| Failure::io("read the folder", folder, &e))
}
