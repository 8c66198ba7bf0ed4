//! Which settings may change between the sessions of a run.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use hmac_sha256::Hash;
use serde_json::{Map, Value};

use crate::failure::{Failure, Result, Shown};
use crate::progress::short;
use crate::run::config::Base;
use crate::task::{Batches, RunSettings};
use crate::train::line::RunArgs as _;

/// The settings with which a run continues: its own, except those that may change. These are the number of epochs (it
/// may grow), the device and the location of the data.
///
/// # Errors
/// All options that differ from the run's settings, with both values; a path that does not exist.
pub(crate) fn settings<T: Batches>(stored: &T, args: &T::Args, run: &Path) -> Result<T> {
    let (mut config, mut fixed) = (stored.clone(), Fixed::default());
    let known = stored.training();
    let (every, examples) = (args.every(), T::examples(args));
    fixed.option("the data set", every.dataset.clone(), stored.dataset().to_owned());
    fixed.option("--batch-size", examples.batch_size, known.batch_size);
    fixed.option("--lr", every.lr.map(short), short(known.lr));
    fixed.option("--seed", every.seed, known.seed);
    let fewer = examples.epochs.filter(|&epochs| epochs < known.epochs);
    fixed.option("--epochs", fewer, known.epochs);
    config.resume(args, &mut fixed)?;
    fixed.check(run)?;
    let training = config.training_mut();
    training.epochs = examples.epochs.unwrap_or(training.epochs);
    training.base.resume(every);
    Ok(config)
}

/// Options that a continued run cannot change.
#[derive(Default)]
pub(crate) struct Fixed(Vec<String>);

impl Fixed {
    /// Checks an option: its given value against the run's.
    pub(crate) fn option<S: PartialEq + Display>(&mut self, option: &str, given: Option<S>, stored: S) {
        if let Some(given) = given.filter(|given| *given != stored) {
            self.0.push(format!("{option} is {stored} there, not {given}"));
        }
    }

    /// Fails if options differ from the run's settings, and names all of them.
    pub(crate) fn check(self, run: &Path) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} cannot go on with other settings: {}",
            run.shown(),
            self.0.join("; ")
        ))
        .fix("leave these options out (--epochs and --total-steps may grow), or start a new run without --resume"))
    }
}

/// One line for each setting that differs from the beginning of the run.
pub(crate) fn changes<T: Batches>(before: &T, now: &T) -> Vec<String> {
    let (old, new) = (before.training(), now.training());
    let settings = [
        (
            "epochs",
            [old.epochs, new.epochs].map(|epochs| epochs.to_string()),
            "; the learning rate continues as if it had been set so from the start",
        ),
        ("data", [before.place(), now.place()], ""),
    ];
    changed(settings.into_iter().chain(of_base(before.base(), now.base())))
}

/// A setting, its value before and now, and a remark.
pub(crate) type Change = (&'static str, [String; 2], &'static str);

/// The settings that every run may change.
pub(crate) fn of_base(before: &Base, now: &Base) -> [Change; 2] {
    let threads = |threads: Option<usize>| threads.map_or("one per core".to_owned(), |n| n.to_string());
    let rounding = "; losses differ only by rounding";
    [
        ("backend", [before.backend.clone(), now.backend.clone()], rounding),
        ("threads", [before.threads, now.threads].map(threads), rounding),
    ]
}

/// A line for each changed setting.
pub(crate) fn changed(settings: impl Iterator<Item = Change>) -> Vec<String> {
    settings
        .filter(|(_, [before, now], _)| before != now)
        .map(|(what, [before, now], note)| format!("{what}: {now} instead of {before}{note}"))
        .collect()
}

/// All settings except those that [`settings`] may change.
fn lasting<T: RunSettings>(config: &T) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(mut settings)) => {
            let may_change = ["backend", "threads", "polygrad"];
            for key in may_change.iter().chain(T::MAY_CHANGE) {
                settings.remove(*key);
            }
            settings
        }
        _ => Map::new(),
    }
}

/// The metadata key of a model's file with the digests of the settings that it was trained with.
const DIGESTS: &str = "polygrad.settings";

/// Metadata that ties a model's file to its settings: a digest of each lasting setting except the run's name, so that
/// identical runs have identical files.
pub(crate) fn model_metadata<T: RunSettings>(config: &T) -> BTreeMap<String, String> {
    let digests = Value::Object(digests(config));
    BTreeMap::from([(DIGESTS.to_owned(), digests.to_string())])
}

fn digests<T: RunSettings>(config: &T) -> Map<String, Value> {
    /// This many bytes of a SHA-256 suffice to distinguish settings.
    const BYTES: usize = 8;
    let mut settings = lasting(config);
    settings.remove("run");
    let digest = |value: &Value| -> String {
        let hash = Hash::hash(value.to_string().as_bytes());
        hash[..BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    settings
        .iter()
        .map(|(key, value)| (key.clone(), digest(value).into()))
        .collect()
}

/// The settings that differ from those of a model's training, according to its file's header; empty for an older file
/// without digests.
pub(crate) fn foreign<T: RunSettings>(config: &T, metadata: &BTreeMap<String, String>) -> Vec<String> {
    let known = metadata
        .get(DIGESTS)
        .and_then(|digests| serde_json::from_str(digests).ok());
    let Some(Value::Object(known)) = known else {
        return Vec::new();
    };
    let differs = |(key, digest): &(String, Value)| known.get(key).is_some_and(|known| known != digest);
    digests(config)
        .into_iter()
        .filter(differs)
        .map(|(key, _)| key)
        .collect()
}

/// The settings that differ between a checkpoint and `config.json`, except those that [`settings`] may change.
pub(crate) fn disagreements<T: RunSettings>(checkpoint: &T, file: &T) -> Vec<String> {
    let file = lasting(file);
    let differs = |(key, value): (String, Value)| {
        let other = file.get(&key).filter(|other| **other != value)?;
        Some(format!("{key} is {value} in the checkpoint, {other} in config.json"))
    };
    lasting(checkpoint).into_iter().filter_map(differs).collect()
}
