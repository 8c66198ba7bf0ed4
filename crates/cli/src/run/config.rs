//! `config.json`: everything that defines a run, so that it can be evaluated, repeated and resumed.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

use clap::ValueEnum;
use polygrad::nn::open_file;
use polygrad::train::RunFolder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::{Every, Examples};
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::task::RunSettings;

/// Incremented if older programs could no longer read the file.
const FORMAT: u32 = 1;

/// The allowed number of epochs, examples per step, values of an example, or classes of a run. With the largest, the
/// order of an epoch's examples and a model of this many inputs still fit in memory.
pub(crate) const COUNTS: RangeInclusive<usize> = 1..=1 << 24;

/// The longest file of settings in bytes: names of classes and words of a table are the largest parts that grow.
pub(crate) const LONGEST: u64 = 1 << 24;

/// The optimizers to train with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Optimizer {
    /// Stochastic gradient descent with Nesterov momentum 0.9
    Sgd,
    /// Adam
    Adam,
    /// Adam with decoupled weight decay
    #[value(name = "adamw")]
    AdamW,
    /// RMSprop
    #[value(name = "rmsprop")]
    RmsProp,
}

/// The settings common to all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Base {
    /// The version of this file's format.
    format: u32,
    /// The kind of run, which runs of images do not store.
    #[serde(default, skip_serializing_if = "Kind::is_images")]
    task: Kind,
    /// The version of Polygrad that wrote it.
    polygrad: String,
    /// A unique name, so that its files are not taken for another run's; older runs have none.
    #[serde(default)]
    pub(crate) run: String,
    /// The backend, as given.
    pub(crate) backend: String,
    /// Threads of the CPU backend; `None` means one per core.
    pub(crate) threads: Option<usize>,
}

/// The settings of training on examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Training {
    #[serde(flatten)]
    pub(crate) base: Base,
    /// Epochs in all.
    pub(crate) epochs: usize,
    /// Examples per step.
    pub(crate) batch_size: usize,
    /// The highest learning rate.
    pub(crate) lr: f64,
    /// The seed of the random numbers.
    pub(crate) seed: u64,
    /// `--qat`: layers compute with numbers rounded to 8 bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) qat: bool,
}

impl Base {
    /// The settings of a new run.
    pub(crate) fn new(kind: Kind, args: &Every) -> Self {
        Self {
            format: FORMAT,
            task: kind,
            polygrad: env!("CARGO_PKG_VERSION").into(),
            run: String::new(),
            backend: args.backend.clone().unwrap_or_else(|| "cpu".into()),
            threads: args.threads,
        }
    }

    /// Updates the device from the command line.
    pub(crate) fn resume(&mut self, args: &Every) {
        if let Some(backend) = &args.backend {
            (self.backend, self.threads) = (backend.clone(), None);
        }
        self.threads = args.threads.or(self.threads);
    }
}

impl Training {
    /// The settings of a new run. These numbers of epochs and examples per step and this learning rate are the
    /// defaults.
    pub(crate) fn new(
        kind: Kind,
        args: &Every,
        examples: &Examples,
        (epochs, batch_size, lr): (usize, usize, f64),
    ) -> Self {
        Self {
            base: Base::new(kind, args),
            epochs: examples.epochs.unwrap_or(epochs),
            batch_size: examples.batch_size.unwrap_or(batch_size),
            lr: args.lr.unwrap_or(lr),
            seed: args.seed.unwrap_or(0),
            qat: false,
        }
    }

    /// Fails if a run cannot be trained with a setting. The error names it and its bounds.
    ///
    /// # Errors
    /// The first such setting.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        counts(&[("epochs", self.epochs), ("batch_size", self.batch_size)])?;
        learning_rate(self.lr).map_err(|why| format!("lr: {why}"))
    }
}

/// The name of a choice, as on the command line.
pub(crate) fn name(choice: impl ValueEnum) -> String {
    choice
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The field that distinguishes kinds of runs.
#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    task: Kind,
}

/// Whether settings are those of a user's own program, which lack the fields that Polygrad's always have.
fn is_foreign(settings: &Value) -> bool {
    settings.get("format").is_none() && settings.get("polygrad").is_none()
}

/// Fails unless the settings in `folder` are those of a run of this command, damaged or not.
///
/// # Errors
/// If they are those of another program.
pub(crate) fn must_be_ours(folder: &Path, settings: &Value) -> Result<()> {
    if !is_foreign(settings) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} was written by a program of its own, not by `polygrad train`: only that program knows how its model is computed",
        folder.shown()
    ))
    .fix(format!(
        "load {} in that program, and write it there as an ONNX file, which `polygrad serve`, `run` and `show` take; `polygrad show {}` \
         says what the run has left",
        RunFolder::new(folder).model().shown(),
        folder.shown()
    )))
}

/// The kind of run that the file describes.
///
/// # Errors
/// A file that cannot be read, or that was written by another program.
pub(crate) fn kind(path: &Path) -> Result<Kind> {
    let text = read(path)?;
    if let Ok(settings) = serde_json::from_str(&text) {
        must_be_ours(folder_of(path), &settings)?;
    }
    // Any other error is found when it is read as that kind of run.
    Ok(serde_json::from_str(&text).map_or(Kind::Images, |Told { task }| task))
}

/// The settings of a run of another program; `None` for a run of this command.
///
/// # Errors
/// A file that cannot be read.
#[cfg(feature = "onnx")]
pub(crate) fn foreign(path: &Path) -> Result<Option<String>> {
    let is_foreign = |text: &String| serde_json::from_str(text).is_ok_and(|settings| is_foreign(&settings));
    Ok(Some(read(path)?).filter(is_foreign))
}

/// Reads the file and checks its values.
///
/// # Errors
/// A file that cannot be read, is no JSON, is of another kind of run, lacks a setting, or has an impossible one.
pub(crate) fn load<T: RunSettings>(path: &Path) -> Result<T> {
    let text = read(path)?;
    if let Ok(settings) = serde_json::from_str(&text) {
        must_be_ours(folder_of(path), &settings)?;
    }
    match serde_json::from_str(&text) {
        Ok(Told { task }) if task != T::KIND => return Err(task.unfit(path, &[T::KIND])),
        _ => {}
    }
    let config: T = parsed(&text).map_err(|e| bad(path, &e.to_string()))?;
    check(&config).map_err(|what| bad(path, &what))?;
    Ok(config)
}

/// Settings from JSON. All are read as bytes, since every other type of source would compile their code again.
///
/// # Errors
/// Errors of `serde_json`.
pub(crate) fn parsed<T: RunSettings>(json: &str) -> serde_json::Result<T> {
    serde_json::from_slice(json.as_bytes())
}

/// Fails unless a run with these settings can be trained, written and read again. The error names the invalid setting
/// and its bounds.
///
/// # Errors
/// The first invalid setting.
pub(crate) fn check<T: RunSettings>(config: &T) -> std::result::Result<(), String> {
    let format = config.base().format;
    if format != FORMAT {
        let version = env!("CARGO_PKG_VERSION");
        return Err(format!("its format is {format}, Polygrad {version} reads {FORMAT}"));
    }
    config.check()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn read(path: &Path) -> Result<String> {
    let (file, _) = open_file(path)?;
    let mut text = String::new();
    let length = file
        .take(LONGEST)
        .read_to_string(&mut text)
        .map_err(|e| Failure::io("read", path, &e))?;
    match length as u64 == LONGEST {
        true => Err(bad(path, "it is too long")),
        false => Ok(text),
    }
}

fn bad(path: &Path, what: &str) -> Failure {
    Failure::new(format!("{} is no settings of a run: {what}", path.shown())).fix("mend the file, or train anew")
}

/// Fails unless each of these is within [`COUNTS`]: invalid sizes must not lead to allocations.
///
/// # Errors
/// The first invalid count.
pub(crate) fn counts(counts: &[(&str, usize)]) -> std::result::Result<(), String> {
    match counts.iter().find(|(_, count)| !COUNTS.contains(count)) {
        None => Ok(()),
        Some((what, count)) => Err(format!("{what}: {count} is not {} to {}", COUNTS.start(), COUNTS.end())),
    }
}

/// Fails unless a learning rate is valid.
///
/// # Errors
/// One that is not above 0, or not finite.
pub(crate) fn learning_rate(rate: f64) -> std::result::Result<(), &'static str> {
    match rate.is_finite() && rate > 0.0 {
        true => Ok(()),
        false => Err("give a number above 0, such as 0.001"),
    }
}

/// Fails unless a name is valid for a data set, since it becomes part of folder names.
///
/// # Errors
/// A name that could lead out of the folder.
pub(crate) fn dataset(name: &str) -> std::result::Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && !name.starts_with('.') && name.chars().all(plain) {
        true => Ok(()),
        false => Err("a name is made of letters, digits, `-`, `_` and `.`; a folder goes with --data"),
    }
}

/// A unique name.
pub(crate) fn fresh_name() -> String {
    // The hasher's keys are random numbers from the system.
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}
