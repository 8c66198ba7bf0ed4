//! `polygrad eval` of runs on images: the accuracy of the model on its test images.

use polygrad::backend::printable;
use polygrad::nn::Sequential;

use super::config::Config;
use super::loaders;
use super::settings::IMAGES;
use crate::args::Eval;
use crate::data::files::Split;
use crate::data::folder;
use crate::data::source::{Places, Request};
use crate::evaluation::evaluate;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, say};
use crate::run::config::name;
use crate::trained;

/// Evaluates a run's model on its own test images, or on those of `--data` and `--full`.
///
/// # Errors
/// A run or data that are missing or damaged, or do not fit together; those of the device.
pub(crate) fn command(args: &Eval) -> Result<Outcome> {
    let trained = trained::load::<Config>(&args.run, args.backend.as_deref(), args.threads)?;
    let config = &trained.config;
    let (split, place) = test_split(args, config)?;
    let (shape, input) = (split.shape, &config.input);
    if shape != [input.channels, input.rows, input.cols] {
        let [channels, rows, cols] = shape;
        return Err(Failure::new(format!(
            "{place} holds images of {channels} × {rows} × {cols} (channels, rows, columns), the model takes {} × {} × {}",
            input.channels, input.rows, input.cols
        ))
        .fix("give the data set that the model was trained on"));
    }
    let called: Vec<String> = config
        .classes
        .iter()
        .map(|class| printable(class).into_owned())
        .collect();
    let classes = called.len();
    if let Some(at) = split.labels.iter().position(|&label| label >= classes) {
        return Err(Failure::new(format!(
            "the label at index {at} that goes with {place} is {}, but the model knows {classes} classes",
            split.labels[at]
        ))
        .fix("give the data set that the model was trained on"));
    }
    let loader = loaders::evaluation(&split, input, &trained.device)?;
    let result = evaluate(&trained.model, Sequential::forward, &loader, classes)?;
    say(&format!(
        "{}: {} on {} test images of {}, on {}",
        args.run.shown(),
        name(config.model),
        grouped(split.labels.len() as u64),
        config.dataset,
        trained.device
    ));
    result.say(&called, "images");
    Ok(Outcome::Done)
}

/// The test images for a run's model, and their location.
fn test_split(args: &Eval, config: &Config) -> Result<(Split, String)> {
    let own = args.data.folder.is_none() && !args.data.full;
    let folder = args.data.folder.as_deref().or(config.data.as_deref().filter(|_| own));
    if let (IMAGES, Some(folder)) = (config.dataset.as_str(), folder) {
        let data = folder::load(folder, config.input.rows, config.training.seed)?;
        if data.classes != config.classes {
            return Err(
                Failure::new(format!("{} has other classes than the model", folder.shown()))
                    .fix("give a folder with the classes that the model was trained on"),
            );
        }
        return Ok((data.test, folder.shown()));
    }
    let request = Request {
        dataset: &config.dataset,
        folder,
        full: args.data.full || own && config.full,
    };
    let files = Places::of_this_machine().locate(request)?;
    Ok((files.load_test()?, files.test_images().shown()))
}
