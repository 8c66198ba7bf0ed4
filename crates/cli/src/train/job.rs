//! Analyses a command line of `polygrad train` without running it.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};

use super::line::Line;
use super::{ForKind, by_kind, prepare};
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::task::Task;

/// The properties of such a training.
pub(crate) struct Job {
    pub(crate) kind: Kind,
    /// The names of the metrics in `metrics.csv`.
    pub(crate) metrics: Vec<String>,
    /// Its length, in units of the column `epoch` of `metrics.csv`.
    pub(crate) length: f64,
}

/// Options that a job may not give: a sweep sets them for each trial, or they need a terminal.
const OWN: [&str; 6] = ["out", "resume", "parallel", "tui", "stop-file", "help"];

/// The training that the words after `polygrad train` describe. Its data are loaded.
///
/// # Errors
/// Words that do not describe a valid training.
pub(crate) fn of(words: &[String]) -> Result<Job> {
    let line = line(words);
    let kind = kind(&line)?;
    by_kind(kind, Whole { kind, line: &line })?
}

/// Fails unless these words describe a valid training, as far as that can be checked without its data.
///
/// # Errors
/// The first invalid word.
pub(crate) fn check(words: &[String]) -> Result<()> {
    let line = line(words);
    by_kind(kind(&line)?, Options { line: &line })?
}

fn line(words: &[String]) -> Line {
    Line::new(words.iter().map(OsString::from).collect())
}

fn kind(line: &Line) -> Result<Kind> {
    let scanned = line.scan();
    if let Some(own) = OWN.into_iter().find(|name| scanned.has(name)) {
        return Err(Failure::new(format!("--{own} cannot be told to several runs")).fix("leave it out"));
    }
    let Some(dataset) = scanned.dataset.as_deref() else {
        return Err(Failure::new("it does not say what to learn from")
            .fix("begin with what would follow `polygrad train`, such as \"cartpole\""));
    };
    let kind = Kind::of_dataset(dataset).must_be_built()?;
    scanned.must_fit(kind)?;
    Ok(kind)
}

fn read<T: Task>(line: &Line) -> Result<T::Args> {
    line.read().map_err(|error| refused(&error))
}

/// clap's message, in one sentence.
fn refused(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let failure = Failure::new(first.strip_prefix("error: ").unwrap_or(first));
    let near = match error
        .get(ContextKind::SuggestedArg)
        .or(error.get(ContextKind::SuggestedValue))
    {
        Some(ContextValue::String(name)) => Some(name.clone()),
        Some(ContextValue::Strings(names)) => Some(names.join(" or ")),
        _ => None,
    };
    match near {
        Some(near) => failure.fix(format!("perhaps {near}")),
        None => failure.fix("`polygrad train DATASET --help` tells the options that there are, and their values"),
    }
}

struct Options<'a> {
    line: &'a Line,
}

impl ForKind for Options<'_> {
    type Output = Result<()>;

    fn with<T: Task>(self) -> Result<()> {
        T::new(&read::<T>(self.line)?).map(|_| ())
    }
}

struct Whole<'a> {
    kind: Kind,
    line: &'a Line,
}

impl ForKind for Whole<'_> {
    type Output = Result<Job>;

    fn with<T: Task>(self) -> Result<Job> {
        let (settings, device, _) = prepare::<T>(&read::<T>(self.line)?)?;
        let loss = std::iter::once("loss".to_owned());
        Ok(Job {
            kind: self.kind,
            metrics: loss.chain(settings.metrics(&device)?).collect(),
            length: settings.length(),
        })
    }
}
