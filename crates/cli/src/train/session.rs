//! A run from its first step, or its last checkpoint, to its end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use polygrad::train::{Callback, Control, Ended, Event, Progress, Run, RunFolder, TrainerConfig};
use polygrad::{Device, manual_seed};

use super::resumed::model_metadata;
use super::{Show, explained, once_taken_over};
use crate::failure::{Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{clock, note, say, speak_as};
use crate::run::{curves, resume_command};
use crate::task::Task;
use crate::team::Team;

/// Trains to the end, or until Ctrl-C, `show`n, in the folder of a run that the first of the team keeps; `changes` are said before.
///
/// # Errors
/// A loss that is no number; a checkpoint that does not fit; those of the device and the disk. The last checkpoint then still is there.
pub(super) fn run<T: Task>(
    config: &T,
    (folder, run): (RunFolder, Option<Run>),
    data: &T::Data,
    device: &Device,
    show: Show,
    changes: &[String],
    team: &Team,
) -> Result<Outcome> {
    let settings = config.training();
    manual_seed(settings.seed);
    let (train, judged_by) = config.loaders(data, device)?;
    team.share_out(&train)?;
    let model = config.model(device)?;
    let about = config.about(data, &model, device);
    about
        .iter()
        .chain(&team.about("batches"))
        .chain(changes)
        .for_each(|line| say(line));
    let curves = Curves::new(folder.curves(), config.title().join(", "), "epoch");
    let options = team
        .options(TrainerConfig::epochs(settings.epochs as u64))
        .settings(config)?
        .model_metadata(model_metadata(config))
        .validation_name(T::JUDGED_BY)
        .stop_on_ctrl_c()?;
    let options = told(options, run, show, "--epochs", curves);
    let steps = (train.batches().unwrap_or(0) * settings.epochs) as u64;
    let mut trainer = config.trainer(model, steps, options, team)?;
    let summary = trainer
        .fit(&train, Some(&judged_by))
        .map_err(|error| explained(error, trainer.run(), settings.lr))?;
    let path = folder.path().shown();
    if summary.ended == Ended::Stopped {
        note(&format!("stopped; to go on: {}", resume_command(&folder)));
        return Ok(Outcome::Interrupted);
    }
    if let Some(last) = summary.evaluation {
        say(&format!("{} after {}", config.result(&last), clock(summary.seconds)));
    }
    let next = config.next(&path).join("\n  ");
    say(&format!(
        "{path} holds the model, its checkpoint and its curves; now try:\n  {next}"
    ));
    Ok(Outcome::Done)
}

/// The options of the process that keeps the run, `show`n; or of another one, which takes over if that one is lost. `longer` is the option for
/// a longer run.
pub(crate) fn told(
    options: TrainerConfig,
    run: Option<Run>,
    show: Show,
    longer: &'static str,
    curves: Curves,
) -> TrainerConfig {
    let (options, show) = match run {
        Some(run) => (options.run(run), show),
        None => (options, once_taken_over as Show),
    };
    show(options.callback(speak).callback(announce(longer)).callback(curves))
}

/// Lets the process speak that keeps the run.
fn speak(_: Event<'_>, progress: &Progress<'_>) -> polygrad::Result<Control> {
    if progress.run.is_some() {
        speak_as(0);
    }
    Ok(Control::Continue)
}

/// Says where the run is, before its first step; `longer` is the option for a longer one.
fn announce(longer: &'static str) -> impl Callback {
    move |event: Event<'_>, progress: &Progress<'_>| {
        if let Event::Begin = event {
            match progress.run {
                Some(run) if progress.steps.is_none_or(|steps| progress.step < steps) => {
                    say(&format!("run folder: {}", run.shown()));
                }
                _ => say(&format!("this run is complete; a larger number of {longer} trains on")),
            }
        }
        Ok(Control::Continue)
    }
}

/// Drawing takes longer than a short epoch.
const REDRAWN: Duration = Duration::from_secs(5);

/// Draws the curves of a run.
pub(crate) struct Curves {
    path: PathBuf,
    title: String,
    /// What the axis below shows.
    axis: &'static str,
    drawn: Option<Instant>,
}

impl Curves {
    pub(crate) fn new(path: PathBuf, title: String, axis: &'static str) -> Self {
        Self {
            path,
            title,
            axis,
            drawn: None,
        }
    }
}

impl Callback for Curves {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> polygrad::Result<Control> {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAWN);
        let draws = match event {
            // Another process keeps the run.
            _ if progress.run.is_none() => false,
            Event::End => true,
            // A run that did not begin leaves nothing.
            Event::Failed => !progress.history.is_empty(),
            Event::Epoch(_) => is_due,
            _ => false,
        };
        if draws {
            let chart = curves::Chart {
                title: &self.title,
                metric: progress.metrics.first().map(String::as_str),
                judged_by: progress.validation,
                axis: self.axis,
            };
            chart.save(&self.path, progress.history)?;
            self.drawn = Some(Instant::now());
        }
        Ok(Control::Continue)
    }
}
