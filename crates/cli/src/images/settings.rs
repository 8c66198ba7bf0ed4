//! From the command line to the settings of a run on images.

use std::path::PathBuf;

use super::args::TrainArgs;
use super::config::{Config, Input, Model};
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::run::config::{Optimizer, Training};
use crate::train;

/// The name of a folder of images on the command line, in place of a data set's.
pub(super) const IMAGES: &str = "images";

const EPOCHS: usize = 8;
const BATCH_SIZE: usize = 32;
const SIZE: usize = 64;

/// A good learning rate for an optimizer on these networks.
fn default_lr(optimizer: Optimizer) -> f64 {
    match optimizer {
        Optimizer::Sgd => 0.05,
        Optimizer::Adam | Optimizer::AdamW => 0.003,
        Optimizer::RmsProp => 0.001,
    }
}

/// The location of the data on the command line: for images a folder, for a data set the folder of `--data`, unless it
/// comes with Polygrad.
///
/// # Errors
/// Two places, one that does not exist, or one that does not apply to these data.
pub(super) fn place(dataset: &str, args: &TrainArgs) -> Result<Option<PathBuf>> {
    match &args.path {
        Some(path) if dataset != IMAGES => Err(Failure::new(format!(
            "{dataset} is a data set and takes no path, such as {}",
            path.shown()
        ))
        .fix("`polygrad train images DIR` takes a folder of images, --data the folder of a data set")),
        _ if dataset == IMAGES && args.data.full => {
            Err(Failure::new("--full is for fashion-mnist, and images lie in a folder").fix("leave it out"))
        }
        _ => train::place(args.path.as_deref(), args.data.folder.as_deref()),
    }
}

/// The settings of a new run; its own name and what depends on the data are still empty.
///
/// # Errors
/// No name of a data set, or a folder that does not exist.
pub(super) fn new(args: &TrainArgs) -> Result<Config> {
    let Some(dataset) = args.every.dataset.clone() else {
        return Err(Failure::new("no data set was named").fix("for example: polygrad train fashion-mnist"));
    };
    let of_images = dataset == IMAGES;
    let folder = place(&dataset, args)?;
    if of_images && folder.is_none() {
        return Err(Failure::new("images lie in a folder, which was not named")
            .fix("for example: polygrad train images pets, where pets has a folder for each class"));
    }
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
        training: Training {
            qat: args.qat,
            ..Training::new(
                Kind::Images,
                &args.every,
                &args.examples,
                (EPOCHS, BATCH_SIZE, default_lr(optimizer)),
            )
        },
        // Clothes look the same mirrored; digits and letters do not.
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
        model: args.model.unwrap_or(Model::Cnn),
        optimizer,
    })
}
