//! A session of a run, from its first step or last checkpoint to its end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use polygrad::train::{
    Callback, Control, Ended, Event, Progress, ProgressBar, Run, RunConfig, RunFolder, Summary, TrainerConfig,
};
use polygrad::{Device, manual_seed};

use super::resumed::model_metadata;
use super::{explained, qat};
use crate::args::Every;
use crate::dashboard;
use crate::failure::{Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{clock, note, say, speak_as};
use crate::run::{curves, resume_command};
use crate::task::{Batches, Task};
use crate::team::Team;

/// The parts of training beside settings and data.
pub(crate) struct Session<'a> {
    pub(crate) team: &'a Team,
    pub(crate) folder: RunFolder,
    /// The run, which the first process of the team holds.
    run: Option<Run>,
    show: Box<dyn Callback>,
    /// The changes since the run began.
    changes: Vec<String>,
}

/// The result of training.
pub(crate) struct Trained {
    pub(crate) summary: Summary,
    /// The quality of the model, in words.
    pub(crate) result: Option<String>,
}

/// Trains in the folder of a run that the first process of the team holds, and prints the result. Before, it prints
/// `changes`.
///
/// # Errors
/// Errors of [`Task::train`].
pub(super) fn run<T: Task>(
    config: &T,
    (folder, run): (RunFolder, Option<Run>),
    data: &T::Data,
    device: &Device,
    show: Box<dyn Callback>,
    changes: Vec<String>,
    team: &Team,
) -> Result<Outcome> {
    let session = Session {
        team,
        folder: folder.clone(),
        run,
        show,
        changes,
    };
    let Trained { summary, result } = config.train(data, device, session)?;
    let path = folder.path().shown();
    if summary.ended == Ended::Stopped {
        note(&format!("stopped; to go on: {}", resume_command(&folder)));
        return Ok(Outcome::Interrupted);
    }
    if let Some(result) = result {
        say(&format!("{result} after {}", clock(summary.seconds)));
    }
    let next = config.next(&path).join("\n  ");
    let learnt = T::LEARNS;
    say(&format!(
        "{path} holds the {learnt}, its checkpoint and its curves; now try:\n  {next}"
    ));
    Ok(Outcome::Done)
}

impl Session<'_> {
    /// Trains on examples, epoch after epoch.
    ///
    /// # Errors
    /// Errors of [`Task::train`].
    pub(crate) fn fit<T: Batches>(self, config: &T, data: &T::Data, device: &Device) -> Result<Trained> {
        let settings = config.training();
        manual_seed(settings.seed);
        let (train, judged_by) = config.loaders(data, device)?;
        self.team.share_out(&train)?;
        let model = config.model(device)?;
        self.introduce(&config.about(data, &model, device), "batches");
        let steps = (train.batches().unwrap_or(0) * settings.epochs) as u64;
        let team = self.team;
        if settings.qat {
            qat::must_be_alone(team)?;
            config.calibrate(&model, &config.loaders(data, device)?.0, steps)?;
        }
        let options = TrainerConfig::epochs(settings.epochs as u64).validation_name(T::JUDGED_BY);
        let options = self.options(config, options, "epoch", "--epochs")?;
        let mut trainer = config.trainer(model, steps, options, team)?;
        let summary = trainer
            .fit(&train, Some(&judged_by))
            .map_err(|error| explained(error, trainer.run(), settings.lr))?;
        let result = summary.evaluation.as_ref().map(|last| config.result(last));
        Ok(Trained { summary, result })
    }

    /// Prints what is trained, by which processes, each with its own `own`, and what has changed.
    pub(crate) fn introduce(&self, about: &[String], own: &str) {
        let team = self.team.about(own);
        about
            .iter()
            .chain(&team)
            .chain(&self.changes)
            .for_each(|line| say(line));
    }

    /// The options of the process that holds the run, or of another one that takes over if that one is lost. `longer`
    /// is the option for a longer run, `axis` the label of the curves' horizontal axis.
    ///
    /// # Errors
    /// Settings that cannot be written; no handler for signals.
    pub(crate) fn options<T: Task, O>(
        self,
        config: &T,
        options: RunConfig<O>,
        axis: &'static str,
        longer: &'static str,
    ) -> Result<RunConfig<O>> {
        let options = self
            .team
            .options(options)
            .settings(config)?
            .model_metadata(model_metadata(config))
            .stop_on_ctrl_c()?;
        let mut show = match self.run {
            Some(_) => self.show,
            None => Box::new(once_taken_over()),
        };
        let options = match self.run {
            Some(run) => options.run(run),
            None => options,
        };
        let curves = Curves {
            path: self.folder.curves(),
            title: config.title().join(", "),
            axis,
            drawn: None,
        };
        Ok(options
            .callback(speak)
            .callback(announce(longer))
            .callback(curves)
            .callback(move |event: Event<'_>, progress: &Progress<'_>| show.on_event(event, progress)))
    }
}

/// How training is displayed.
///
/// # Errors
/// A dashboard that is not in this build.
pub(super) fn show(args: &Every) -> Result<Box<dyn Callback>> {
    let show: Box<dyn Callback> = match args.tui {
        true => dashboard::callback()?,
        false => Box::new(ProgressBar::printing(say)),
    };
    Ok(match args.stop_file.clone() {
        Some(file) => Box::new(until(file, show)),
        None => show,
    })
}

/// The time between checks for the file that stops a run.
const LOOKS: Duration = Duration::from_millis(100);

/// Stops training once `path` exists.
fn until(path: PathBuf, mut show: Box<dyn Callback>) -> impl Callback {
    let mut looked = Instant::now();
    move |event: Event<'_>, progress: &Progress<'_>| {
        let control = show.on_event(event, progress)?;
        if looked.elapsed() < LOOKS {
            return Ok(control);
        }
        looked = Instant::now();
        Ok(if path.exists() { Control::Stop } else { control })
    }
}

/// Shows progress in lines, once this process has taken over the run.
fn once_taken_over() -> impl Callback {
    let mut lines = ProgressBar::printing(say);
    move |event: Event<'_>, progress: &Progress<'_>| match progress.run {
        Some(_) => lines.on_event(event, progress),
        None => Ok(Control::Continue),
    }
}

/// Makes the process that holds the run print its output.
fn speak(_: Event<'_>, progress: &Progress<'_>) -> polygrad::Result<Control> {
    if progress.run.is_some() {
        speak_as(0);
    }
    Ok(Control::Continue)
}

/// Prints the run's location before its first step. `longer` is the option for a longer run.
fn announce(longer: &'static str) -> impl Callback {
    move |event: Event<'_>, progress: &Progress<'_>| {
        if let Event::Begin = event {
            match progress.run {
                Some(run) if progress.steps.is_none_or(|steps| progress.step < steps) => {
                    say(&format!("run folder: {}", run.shown()));
                }
                _ => say(&format!(
                    "this run is complete; to train longer, give a larger {longer}"
                )),
            }
        }
        Ok(Control::Continue)
    }
}

/// The shortest time between drawings, since drawing takes longer than a short epoch.
const REDRAWN: Duration = Duration::from_secs(5);

/// Draws the curves of a run.
struct Curves {
    path: PathBuf,
    title: String,
    /// The label of the horizontal axis.
    axis: &'static str,
    drawn: Option<Instant>,
}

impl Callback for Curves {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> polygrad::Result<Control> {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAWN);
        let draws = match event {
            // Another process holds the run.
            _ if progress.run.is_none() => false,
            Event::End => true,
            // A run that did not begin leaves no files.
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
