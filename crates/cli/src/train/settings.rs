//! From the command line to a run's settings.

use std::fmt::Display;
use std::path::Path;

use super::{absolute, place};
use crate::args::Train;
use crate::failure::{Failure, Result, Shown};
use crate::progress::short;
use crate::run::config::{Config, Input, Model, Optimizer, name};

/// What a folder of images is called in place of a data set's name.
pub(crate) const IMAGES: &str = "images";

const EPOCHS: usize = 8;
const BATCH_SIZE: usize = 32;
const SIZE: usize = 64;

/// The learning rate that goes well with an optimizer on these networks.
fn default_lr(optimizer: Optimizer) -> f64 {
    match optimizer {
        Optimizer::Sgd => 0.05,
        Optimizer::Adam | Optimizer::AdamW => 0.003,
        Optimizer::RmsProp => 0.001,
    }
}

/// The settings of a new run; its own name and what depends on the data are still empty.
///
/// # Errors
/// No name of a data set, or a folder that is not there.
pub(super) fn new(args: &Train) -> Result<Config> {
    let Some(dataset) = args.dataset.clone() else {
        return Err(Failure::new("no data set was named").fix("for example: polygrad train fashion-mnist"));
    };
    if args.text.is_some() {
        return Err(Failure::new(format!("{dataset} are images, and --text names a text"))
            .fix("polygrad train chargpt --text FILE"));
    }
    let of_images = dataset == IMAGES;
    let folder = match (&args.path, place(&args.data)?) {
        (Some(path), None) if of_images => Some(absolute(path)?),
        (None, Some(folder)) if of_images && !args.data.full => Some(folder),
        (None, _) if of_images => {
            return Err(Failure::new("images lie in a folder, which was not named")
                .fix("for example: polygrad train images pets, where pets has a folder for each class"));
        }
        (Some(path), _) => {
            return Err(Failure::new(format!(
                "{dataset} is a data set and takes no path, such as {}",
                path.shown()
            ))
            .fix("`polygrad train images DIR` takes a folder of images, --data the folder of a data set"));
        }
        (None, folder) => folder,
    };
    let size = match (of_images, args.size) {
        (true, size) => size.unwrap_or(SIZE),
        (false, None) => 0,
        (false, Some(_)) => {
            return Err(
                Failure::new(format!("the images of {dataset} have a size of their own")).fix("leave --size out"),
            );
        }
    };
    let optimizer = args.optimizer.unwrap_or(Optimizer::AdamW);
    Ok(Config {
        format: Config::FORMAT,
        polygrad: env!("CARGO_PKG_VERSION").into(),
        run: String::new(),
        // Clothes look the same from both sides; digits and letters do not.
        mirror: of_images || dataset == "fashion-mnist",
        dataset,
        data: folder,
        full: args.data.full,
        classes: Vec::new(),
        input: Input {
            channels: 0,
            rows: size,
            cols: size,
            mean: 0.0,
            std: 1.0,
        },
        backend: args.backend.clone().unwrap_or_else(|| "cpu".into()),
        threads: args.threads,
        model: args.model.unwrap_or(Model::Cnn),
        epochs: args.epochs.unwrap_or(EPOCHS),
        batch_size: args.batch_size.unwrap_or(BATCH_SIZE),
        lr: args.lr.unwrap_or(default_lr(optimizer)),
        optimizer,
        seed: args.seed.unwrap_or(0),
    })
}

/// The settings with which a run goes on: its own, except for what may change, which is the number of epochs (it may grow), the
/// device and the place of the data.
///
/// # Errors
/// Options that ask for something else than the run has, all of them with both values; a folder that is not there.
pub(super) fn resumed(args: &Train, stored: &Config, run: &Path) -> Result<Config> {
    let mut fixed = Fixed::default();
    let text = |value: &dyn Display| value.to_string();
    fixed.option("the data set", args.dataset.clone(), stored.dataset.clone());
    fixed.option("--model", args.model.map(name), name(stored.model));
    fixed.option("--optimizer", args.optimizer.map(name), name(stored.optimizer));
    fixed.option(
        "--batch-size",
        args.batch_size.map(|n| text(&n)),
        text(&stored.batch_size),
    );
    fixed.option("--lr", args.lr.map(short), short(stored.lr));
    fixed.option("--seed", args.seed.map(|seed| text(&seed)), text(&stored.seed));
    fixed.option("--size", args.size.map(|size| text(&size)), text(&stored.input.rows));
    let fewer = args.epochs.filter(|&epochs| epochs < stored.epochs);
    fixed.option("--epochs", fewer.map(|n| text(&n)), text(&stored.epochs));
    fixed.check(run)?;
    let mut config = stored.clone();
    config.epochs = args.epochs.unwrap_or(stored.epochs);
    if let Some(backend) = &args.backend {
        (config.backend, config.threads) = (backend.clone(), None);
    }
    config.threads = args.threads.or(config.threads);
    if args.data.full || args.data.folder.is_some() {
        (config.data, config.full) = (place(&args.data)?, args.data.full);
    }
    Ok(config)
}

/// What a run that goes on cannot be asked to change.
#[derive(Default)]
pub(crate) struct Fixed(Vec<String>);

impl Fixed {
    /// An option, what it was given, and what the run has.
    pub(crate) fn option(&mut self, option: &str, given: Option<String>, stored: String) {
        if let Some(given) = given.filter(|given| *given != stored) {
            self.0.push(format!("{option} is {stored} there, not {given}"));
        }
    }

    /// Fails if an option asked for something else than the run has, naming all that did.
    pub(crate) fn check(self, run: &Path) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} cannot go on with other settings: {}",
            run.shown(),
            self.0.join("; ")
        ))
        .fix("leave these options out (--epochs may grow), or start a new run without --resume"))
    }
}

/// One line for each setting with which a run goes on that differs from how it began.
pub(super) fn changes(before: &Config, now: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let mut changed = |what: &str, before: String, now: String, note: &str| {
        if before != now {
            lines.push(format!("{what}: {now} instead of {before}{note}"));
        }
    };
    let threads = |config: &Config| config.threads.map_or("one per core".to_owned(), |n| n.to_string());
    let place = |config: &Config| match &config.data {
        Some(folder) => folder.shown().to_string(),
        None if config.full => "the full set".into(),
        None => "the subset that comes with Polygrad".into(),
    };
    changed(
        "epochs",
        before.epochs.to_string(),
        now.epochs.to_string(),
        "; the learning rate goes on as if that had been so from the start",
    );
    let rounding = "; losses are the same but for rounding";
    changed("backend", before.backend.clone(), now.backend.clone(), rounding);
    changed("threads", threads(before), threads(now), rounding);
    changed("data", place(before), place(now), "");
    lines
}

/// The settings that a checkpoint and `config.json` disagree about, other than those that [`resumed`] may change.
pub(super) fn disagreements(checkpoint: &Config, file: &Config) -> Vec<String> {
    let all = |config: &Config| {
        let comparable = Config {
            epochs: 0,
            backend: String::new(),
            threads: None,
            data: None,
            full: false,
            polygrad: String::new(),
            ..config.clone()
        };
        match serde_json::to_value(comparable) {
            Ok(serde_json::Value::Object(settings)) => settings,
            _ => serde_json::Map::new(),
        }
    };
    let file = all(file);
    let differs = |(key, value): (String, serde_json::Value)| {
        let other = file.get(&key).filter(|other| **other != value)?;
        Some(format!("{key} is {value} in the checkpoint, {other} in config.json"))
    };
    all(checkpoint).into_iter().filter_map(differs).collect()
}
