//! A run from its first step, or its last checkpoint, to its end.

use std::path::PathBuf;

use polygrad::train::{Callback, Control, Ended, Event, Progress, ProgressBar, Run, RunFolder, TrainerConfig};
use polygrad::{Device, manual_seed};

use super::{explained, learner};
use crate::data::files::Dataset;
use crate::failure::{Result, Shown};
use crate::interrupt::Interrupt;
use crate::loaders;
use crate::outcome::Outcome;
use crate::progress::{clock, note, say};
use crate::run::config::{Config, name};
use crate::run::{curves, resume_command};

/// Trains in the folder of `run` to the end, or until Ctrl-C.
///
/// # Errors
/// A loss that is no number; a checkpoint that does not fit; those of the device and the disk. The last checkpoint then still is there.
pub(super) fn run(
    config: &Config,
    run: Run,
    data: &Dataset,
    device: &Device,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    manual_seed(config.seed);
    let folder = RunFolder::new(run.path());
    let curves = Curves {
        path: folder.curves(),
        title: format!("{}, {}", config.dataset, name(config.model)),
    };
    let options = TrainerConfig::epochs(config.epochs as u64)
        .run(run)
        .settings(config)?
        .validation_name("test")
        .stop_flag(interrupt.flag())
        .callback(announce)
        .callback(ProgressBar::printing(say))
        .callback(curves);
    let train = loaders::training(&data.train, config, device)?;
    let test = loaders::evaluation(&data.test, &config.input, device)?;
    let mut trainer = learner::build(config, &data.train, device, options)?;
    let summary = trainer
        .fit(&train, Some(&test))
        .map_err(|error| explained(error, trainer.run(), config.lr))?;
    let path = folder.path().shown();
    if summary.ended == Ended::Stopped {
        note(&format!("stopped; to go on: {}", resume_command(&folder)));
        return Ok(Outcome::Interrupted);
    }
    if let Some(last) = summary.evaluation {
        let accuracy = last.metrics.first().copied().unwrap_or(f64::NAN);
        say(&format!(
            "test accuracy {:.2} % after {}",
            100.0 * accuracy,
            clock(summary.seconds)
        ));
    }
    say(&format!(
        "{path} holds the model, its checkpoint and its curves; now try:\n  polygrad eval {path}\n  polygrad predict {path} IMAGE.png"
    ));
    Ok(Outcome::Done)
}

/// Says where the run is, before its first step.
fn announce(event: Event<'_>, progress: &Progress<'_>) -> polygrad::Result<Control> {
    if let Event::Begin = event {
        match progress.run {
            Some(run) if progress.steps.is_none_or(|steps| progress.step < steps) => {
                say(&format!("run folder: {}", run.shown()));
            }
            _ => say("this run is complete; a larger number of --epochs trains on"),
        }
    }
    Ok(Control::Continue)
}

/// Draws the curves of a run.
struct Curves {
    path: PathBuf,
    title: String,
}

impl Callback for Curves {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> polygrad::Result<Control> {
        if matches!(event, Event::Epoch(_) | Event::End) {
            curves::save(&self.path, &self.title, progress.history)?;
        }
        Ok(Control::Continue)
    }
}
