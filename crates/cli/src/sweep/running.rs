//! A running trial: a process of this program that trains.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use polygrad::train::RunFolder;
use serde_json::Value;

use super::config::{Config, Pruner};
use super::curve::Curve;
use super::journal::{Claimed, Event, Journal, Run};
use super::search::is_hopeless;
use crate::failure::{Failure, Result, Shown};
use crate::train::job::Job;

/// How much of the end of a process's output is searched for its error, in bytes.
const TAIL: u64 = 1 << 16;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) number: usize,
    values: Vec<Value>,
    /// Its runs that have finished.
    runs: Vec<Run>,
    run: RunFolder,
    process: Child,
    /// The last point at which it was compared with others.
    rung: u64,
    /// Why it was told to stop, if it was.
    told: Option<Told>,
    /// The trial's lock, held until its outcome is in the journal.
    lock: File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Hopeless,
    /// The sweep is stopping.
    Paused,
}

impl Running {
    /// Starts the process of a trial, which continues its run if there is a checkpoint.
    ///
    /// # Errors
    /// A folder that cannot be written; a process that cannot be started.
    pub(super) fn start(config: &Config, journal: &Journal, claimed: Claimed) -> Result<Self> {
        remove(&journal.stop_file(claimed.number), |path| fs::remove_file(path))?;
        let run = journal.run(config, claimed.number, claimed.runs.len());
        let process = if claimed.again && run.checkpoint().exists() {
            let words = ["--resume".into(), run.path().into()];
            spawn(journal, claimed.number, words.into(), &claimed.lock)?
        } else {
            begin(
                config,
                journal,
                claimed.number,
                (&claimed.values, claimed.runs.len()),
                &claimed.lock,
            )?
        };
        Ok(Self {
            number: claimed.number,
            values: claimed.values,
            runs: claimed.runs,
            run,
            process,
            rung: 0,
            told: None,
            lock: claimed.lock,
        })
    }

    /// Starts the run after one that has finished. It stops at once if the trial was told to.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub(super) fn go_on(&mut self, config: &Config, journal: &Journal, run: Run) -> Result<()> {
        self.runs.push(run);
        let at = self.runs.len();
        self.run = journal.run(config, self.number, at);
        self.process = begin(config, journal, self.number, (&self.values, at), &self.lock)?;
        self.rung = 0;
        Ok(())
    }

    /// The outcome of the run, once it has ended. Tells it to stop if the trial should be pruned.
    ///
    /// # Errors
    /// Files that cannot be read or written; errors of the system.
    pub(super) fn look(&mut self, config: &Config, journal: &Journal, job: &Job) -> Result<Option<Event>> {
        let failed = |error| Failure::new(format!("the process of a trial is lost: {error}"));
        if let Some(status) = self.process.try_wait().map_err(failed)? {
            return self.ended(status, config, journal, job).map(Some);
        }
        if self.told.is_none() && config.pruner != Pruner::None {
            let curve = self.curve(config)?.rungs(job.length);
            let rung = curve.last().map_or(0, |last| last.0);
            if rung > self.rung {
                self.rung = rung;
                if self.is_hopeless(config, journal, &curve)? {
                    self.tell(journal, Told::Hopeless)?;
                }
            }
        }
        Ok(None)
    }

    fn is_hopeless(&self, config: &Config, journal: &Journal, curve: &[(u64, f64)]) -> Result<bool> {
        let before = self.runs.iter().map(|run| &run.curve[..]);
        let runs: Vec<&[(u64, f64)]> = before.chain([curve]).collect();
        Ok(is_hopeless(config, &journal.trials()?, self.number, &runs))
    }

    /// Tells it to stop after its next checkpoint, since the sweep stops.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn pause(&mut self, journal: &Journal) -> Result<()> {
        match self.told {
            None => self.tell(journal, Told::Paused),
            Some(_) => Ok(()),
        }
    }

    /// Waits for its end, whatever the outcome.
    pub(super) fn wait(mut self) {
        // A process that cannot be waited for is left to the next sweep, as if this sweep had been killed.
        let _ = self.process.wait();
    }

    fn tell(&mut self, journal: &Journal, why: Told) -> Result<()> {
        let path = journal.stop_file(self.number);
        fs::write(&path, "").map_err(|e| Failure::io("write", &path, &e))?;
        self.told = Some(why);
        Ok(())
    }

    fn curve(&self, config: &Config) -> Result<Curve> {
        Curve::read(&self.run.metrics(), &config.metric)
    }

    fn ended(&self, status: ExitStatus, config: &Config, journal: &Journal, job: &Job) -> Result<Event> {
        if status.success() {
            let curve = self.curve(config)?;
            let result = curve
                .result(config.take, config.maximize)
                .filter(|value| value.is_finite());
            let (seconds, curve) = (curve.seconds, curve.rungs(job.length));
            let Some(value) = result else {
                let why = format!("its {} is no number", config.metric);
                return Ok(Event::Failed { why });
            };
            let is_last = self.runs.len() + 1 == config.seeds;
            return Ok(match is_last {
                true => Event::Done(Run { value, seconds, curve }),
                false if self.told == Some(Told::Hopeless) || self.is_hopeless(config, journal, &curve)? => {
                    Event::Pruned { seconds, curve }
                }
                false => Event::Ran(Run { value, seconds, curve }),
            });
        }
        match (status.code(), self.told) {
            // As after Ctrl-C, SIGTERM and SIGHUP.
            (Some(129 | 130 | 143), Some(Told::Hopeless)) => {
                let curve = self.curve(config)?;
                Ok(Event::Pruned {
                    seconds: curve.seconds,
                    curve: curve.rungs(job.length),
                })
            }
            (Some(129 | 130 | 143), _) => Ok(Event::Stopped),
            (Some(code), _) => {
                let path = journal.output(self.number);
                let why = last_error(&path).unwrap_or_else(|| format!("it ended with status {code}"));
                Ok(Event::Failed { why })
            }
            // Killed: the trial remains to be done.
            (None, _) => Ok(Event::Lost),
        }
    }
}

/// Starts a run of a trial with these values, counted from 0.
fn begin(
    config: &Config,
    journal: &Journal,
    trial: usize,
    (values, run): (&[Value], usize),
    lock: &File,
) -> Result<Child> {
    let folder = journal.run(config, trial, run);
    // A run that was killed before its first checkpoint.
    remove(folder.path(), |path| fs::remove_dir_all(path))?;
    let words = [config.words(values), config.seed_words(run)].concat();
    let mut words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    words.extend(["--out".into(), folder.path().into()]);
    spawn(journal, trial, words, lock)
}

/// Starts the process of a trial, which trains as these words say.
fn spawn(journal: &Journal, trial: usize, words: Vec<OsString>, lock: &File) -> Result<Child> {
    let path = journal.output(trial);
    let output = File::options().create(true).append(true).open(&path);
    let output = output.and_then(|file| Ok((file.try_clone()?, file)));
    let (out, err) = output.map_err(|e| Failure::io("write", &path, &e))?;
    let lock = lock.try_clone();
    let lock = lock.map_err(|error| Failure::new(format!("cannot share the lock of a trial: {error}")))?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("it is not known where this program lies: {error}")))?;
    Command::new(&program)
        .arg("train")
        .args(words)
        .arg("--stop-file")
        .arg(journal.stop_file(trial))
        // Stdin is not read: it makes the process keep the lock of its trial if this process is killed.
        .stdin(Stdio::from(lock))
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|e| Failure::io("start", &program, &e))
}

/// Removes a file or folder that may be missing.
fn remove(path: &Path, how: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    match how(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::io("remove", path, &error)),
        _ => Ok(()),
    }
}

/// The last error that a process reported.
fn last_error(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().rev().find_map(|line| line.strip_prefix("error: "))?;
    Some(Path::new(line).shown())
}
