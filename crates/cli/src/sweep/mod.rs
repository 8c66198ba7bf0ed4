//! `polygrad sweep`: repeats a training with varying settings to find the best.

mod config;
mod curve;
mod journal;
mod plot;
mod process;
mod running;
mod search;
mod show;
mod space;

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use polygrad::train::flag_of_signals;
use polygrad_console::arguments::png_file;

use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{clock, note, say};
use crate::train::job::Job;
use config::Config;
use journal::{Event, Journal, Next, Trial};
use running::Running;
use show::{figure, report, setting};

/// The time between checks of the processes.
const LOOKS: Duration = Duration::from_millis(50);

/// The time between checks for trials left by other processes.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// TOML file with the training, the metric and the settings to vary; further calls continue the sweep, even at the
    /// same time and on other machines that share its folder
    #[arg(value_name = "CONFIG.toml", required_unless_present = "show")]
    config: Option<PathBuf>,

    /// Show what the sweep in this folder has found so far
    #[arg(long, value_name = "FOLDER", conflicts_with = "config")]
    show: Option<PathBuf>,

    /// With --show: plot the results to this file
    #[arg(long, value_name = "FILE.png", requires = "show", value_parser = PathBufValueParser::new().try_map(png_file))]
    plot: Option<PathBuf>,
}

/// Searches, or prints what was found.
///
/// # Errors
/// An invalid file, a folder that cannot be written, or a sweep of which every trial fails.
pub(crate) fn command(args: &Sweep) -> Result<Outcome> {
    if let Some(folder) = &args.show {
        let (config, trials) = Journal::look(folder)?;
        let config = Config {
            folder: folder.clone(),
            ..config
        };
        report(&config, &trials);
        if let Some(path) = &args.plot {
            plot::save(path, &config, &trials)?;
            say(&format!("drawn: {}", path.shown()));
        }
        return Ok(Outcome::Done);
    }
    let path = args.config.as_deref().unwrap_or("sweep.toml".as_ref());
    let config = Config::read(path)?;
    let job = config.job()?;
    let text = std::fs::read(path).map_err(|e| Failure::io("read", path, &e))?;
    let journal = Journal::open(&config, &text)?;
    say(&format!(
        "{} trials of `polygrad train {}` in {}",
        config.trials,
        show::shell(&config.train),
        config.folder.shown()
    ));
    let mut sweep = Search {
        config: &config,
        journal: &journal,
        job: &job,
        running: Vec::new(),
    };
    let outcome = sweep.run();
    // After an error, too, no child process may continue.
    for trial in &mut sweep.running {
        let _ = trial.pause(&journal);
    }
    sweep.running.drain(..).for_each(Running::wait);
    if outcome? == Outcome::Interrupted {
        note(&format!("stopped; to go on: polygrad sweep {}", path.shown()));
        return Ok(Outcome::Interrupted);
    }
    let trials = journal.trials()?;
    report(&config, &trials);
    match Trial::best(&config, &trials) {
        Some(_) => Ok(Outcome::Done),
        None => Err(Failure::new("no trial came to an end").fix("see above why, and give other values")),
    }
}

struct Search<'a> {
    config: &'a Config,
    journal: &'a Journal,
    job: &'a Job,
    running: Vec<Running>,
}

impl Search<'_> {
    /// Trains until all trials are done, including those of other processes, or a signal stops it.
    fn run(&mut self) -> Result<Outcome> {
        let stop = flag_of_signals()?;
        let (mut asked, mut waits) = (None::<Instant>, String::new());
        loop {
            self.look()?;
            if stop.load(Relaxed) {
                self.running
                    .iter_mut()
                    .try_for_each(|trial| trial.pause(self.journal))?;
                if self.running.is_empty() {
                    return Ok(Outcome::Interrupted);
                }
            } else if self.running.len() < self.config.parallel && asked.is_none_or(|at| at.elapsed() > PATIENCE) {
                match self.next()? {
                    None => asked = None,
                    Some(Next::Over) if self.running.is_empty() => return Ok(Outcome::Done),
                    Some(Next::Wait(who)) if self.running.is_empty() && who != waits => {
                        say(&format!("waiting for trials of other processes: {who}"));
                        (asked, waits) = (Some(Instant::now()), who);
                    }
                    Some(_) => asked = Some(Instant::now()),
                }
                if asked.is_none() {
                    continue;
                }
            }
            sleep(LOOKS);
        }
    }

    /// Starts a trial, or returns what else there is to do.
    fn next(&mut self) -> Result<Option<Next>> {
        let suggest = |trials: &[Trial], number| search::suggest(self.config, trials, number);
        match self.journal.claim(self.config.trials, suggest)? {
            Next::Trial(claimed) => {
                let again = if claimed.again { "goes on: " } else { "" };
                let values = setting(self.config, &claimed.values);
                say(&format!(
                    "trial {} of {}: {again}{values}",
                    claimed.number, self.config.trials
                ));
                self.running.push(Running::start(self.config, self.journal, claimed)?);
                Ok(None)
            }
            other => Ok(Some(other)),
        }
    }

    /// Records the trials that have ended.
    fn look(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some(trial) = self.running.get_mut(at) {
            let number = trial.number;
            match trial.look(self.config, self.journal, self.job)? {
                None => at += 1,
                Some(Event::Ran(run)) => {
                    self.ended(number, Event::Ran(run.clone()))?;
                    self.running[at].go_on(self.config, self.journal, run)?;
                }
                Some(event) => {
                    // Its lock is kept until this is recorded.
                    let _trial = self.running.remove(at);
                    self.ended(number, event)?;
                }
            }
        }
        Ok(())
    }

    fn ended(&self, number: usize, event: Event) -> Result<()> {
        // A trial that was killed remains to be done: its lock is free.
        if event != Event::Lost {
            self.journal.add(number, event.clone())?;
        }
        let trials = self.journal.trials()?;
        let Some(trial) = trials.get(number - 1) else {
            return Ok(());
        };
        let (metric, after) = (&self.config.metric, clock(trial.seconds()));
        let reached = figure(trial.reached().unwrap_or(f64::NAN));
        let what = match &event {
            Event::Ran(run) => {
                let (at, value) = (trial.runs.len(), figure(run.value));
                say(&format!(
                    "trial {number}, run {at} of {}: {metric} {value}",
                    self.config.seeds
                ));
                return Ok(());
            }
            Event::Done(_) => format!("{metric} {reached} after {after}"),
            Event::Pruned { .. } => format!("ended early, after {after}: {metric} {reached}"),
            Event::Failed { why } => format!("failed: {why}"),
            Event::Lost => "its process was killed".to_owned(),
            _ => "stopped".to_owned(),
        };
        let best = Trial::best(self.config, &trials).map_or_else(String::new, |best| {
            let value = figure(best.value().unwrap_or(f64::NAN));
            format!("; best: {value} of trial {}", best.number)
        });
        say(&format!("trial {number}: {what}{best}"));
        Ok(())
    }
}
