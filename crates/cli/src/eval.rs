//! `polygrad eval`: how well a trained model does on its test images.

use std::fmt::Write;

use polygrad::backend::printable;

use crate::args::Eval;
use crate::data::files::Split;
use crate::data::folder;
use crate::data::source::{Places, Request};
use crate::evaluation::{Evaluation, evaluate};
use crate::failure::{Failure, Result, Shown};
use crate::loaders;
use crate::outcome::Outcome;
use crate::progress::{grouped, say};
use crate::run::config::{Config, name};
use crate::train::settings::IMAGES;
use crate::trained;

/// With more classes than this the table of confusions is wider than a terminal.
const WIDEST: usize = 16;

/// Evaluates a run's model on its own test images, or on those of `--data` and `--full`.
///
/// # Errors
/// A run or data that are missing or damaged, or do not fit together; those of the device.
pub(crate) fn command(args: &Eval) -> Result<Outcome> {
    let trained = trained::load(&args.run, args.backend.as_deref(), args.threads)?;
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
    let result = evaluate(&trained.model, &loader, classes)?;
    say(&format!(
        "{}: {} on {} test images of {}, on {}",
        args.run.shown(),
        name(config.model),
        grouped(split.labels.len() as u64),
        config.dataset,
        trained.device
    ));
    say(&format!(
        "loss {:.4}  accuracy {:.2} %",
        result.loss,
        100.0 * result.accuracy()
    ));
    say(&per_class(&called, &result));
    if classes <= WIDEST {
        say(&confusions(&called, &result));
    }
    Ok(Outcome::Done)
}

/// The images to judge a run's model by, and where they are.
fn test_split(args: &Eval, config: &Config) -> Result<(Split, String)> {
    let own = args.data.folder.is_none() && !args.data.full;
    let folder = args.data.folder.as_deref().or(config.data.as_deref().filter(|_| own));
    if let (IMAGES, Some(folder)) = (config.dataset.as_str(), folder) {
        let data = folder::load(folder, config.input.rows, config.seed)?;
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

fn width(classes: &[String]) -> usize {
    let widths = classes.iter().map(|class| class.chars().count());
    widths.max().unwrap_or(0).max(5)
}

/// How many images of each class were told right, and what it was most often mistaken for.
fn per_class(classes: &[String], result: &Evaluation) -> String {
    let width = width(classes);
    let mut text = format!("\n{:width$}  images  accuracy  most often mistaken for", "class");
    for (class, (called, row)) in classes.iter().zip(&result.confusion).enumerate() {
        let total: u64 = row.iter().sum();
        let percent = |n: u64| 100.0 * n as f64 / total.max(1) as f64;
        let _ = write!(text, "\n{called:width$}  {:>6}", grouped(total));
        if total == 0 {
            continue;
        }
        let _ = write!(text, "  {:>6.1} %", percent(row[class]));
        let mistakes = row.iter().enumerate().filter(|&(other, &n)| other != class && n > 0);
        // Of equals the first.
        if let Some((other, &n)) = mistakes.rev().max_by_key(|(_, n)| **n) {
            let _ = write!(text, "  {} ({:.1} %)", classes[other], percent(n));
        }
    }
    text
}

/// The whole table: a row for each class, a column for each answer.
fn confusions(classes: &[String], result: &Evaluation) -> String {
    let width = width(classes);
    let largest = result.confusion.iter().flatten().max().copied().unwrap_or(0);
    let cell = (largest.to_string().len() + 2).max(6);
    let mut text = format!("\n{:width$}", "taken for");
    for class in classes {
        let short: String = class.chars().take(cell - 1).collect();
        let _ = write!(text, "{short:>cell$}");
    }
    for (class, row) in classes.iter().zip(&result.confusion) {
        let _ = write!(text, "\n{class:width$}");
        for n in row {
            let _ = write!(text, "{n:>cell$}");
        }
    }
    text
}
