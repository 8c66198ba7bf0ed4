//! A running trial: a process of this program that trains.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use polygrad::train::RunFolder;

use super::config::Config;
use super::curve::Curve;
use super::journal::{Claimed, Event, Journal};
use super::search::is_hopeless;
use crate::failure::{Failure, Result, Shown};
use crate::train::job::Job;

/// How much of the end of a process's output is searched for its error, in bytes.
const TAIL: u64 = 1 << 16;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) number: usize,
    run: RunFolder,
    process: Child,
    /// The last point at which it was compared with others.
    rung: u64,
    /// Why it was told to stop, if it was.
    told: Option<Told>,
    /// The trial's lock, held until its outcome is in the journal.
    _lock: File,
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
        let (number, run) = (claimed.number, journal.run(claimed.number));
        let (folder, stop) = (run.path(), journal.stop_file(number));
        remove(&stop, |path| fs::remove_file(path))?;
        let mut words: Vec<std::ffi::OsString> = vec!["train".into()];
        if claimed.again && run.checkpoint().exists() {
            words.extend(["--resume".into(), folder.into()]);
        } else {
            // A run that was killed before its first checkpoint.
            remove(folder, |path| fs::remove_dir_all(path))?;
            words.extend(config.words(&claimed.values).into_iter().map(Into::into));
            words.extend(["--out".into(), folder.into()]);
        }
        words.extend(["--stop-file".into(), stop.into()]);
        let path = journal.output(number);
        let output = File::options().create(true).append(true).open(&path);
        let output = output.and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = output.map_err(|e| Failure::io("write", &path, &e))?;
        let lock = claimed.lock.try_clone();
        let lock = lock.map_err(|error| Failure::new(format!("cannot share the lock of a trial: {error}")))?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("it is not known where this program lies: {error}")))?;
        let process = Command::new(&program)
            .args(words)
            // Stdin is not read: it makes the process keep the lock of its trial if this process is killed.
            .stdin(Stdio::from(claimed.lock))
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|e| Failure::io("start", &program, &e))?;
        Ok(Self {
            number,
            run,
            process,
            rung: 0,
            told: None,
            _lock: lock,
        })
    }

    /// The outcome, once it has ended. Tells it to stop if it should be pruned.
    ///
    /// # Errors
    /// Files that cannot be read or written; errors of the system.
    pub(super) fn look(&mut self, config: &Config, journal: &Journal, job: &Job) -> Result<Option<Event>> {
        let failed = |error| Failure::new(format!("the process of a trial is lost: {error}"));
        if let Some(status) = self.process.try_wait().map_err(failed)? {
            return self.ended(status, config, journal, job).map(Some);
        }
        if self.told.is_none() && config.pruner != super::config::Pruner::None {
            let curve = self.curve(config)?.rungs(job.length);
            let rung = curve.last().map_or(0, |last| last.0);
            if rung > self.rung {
                self.rung = rung;
                if is_hopeless(config, &journal.trials()?, self.number, &curve) {
                    self.tell(journal, Told::Hopeless)?;
                }
            }
        }
        Ok(None)
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
            return Ok(match result {
                Some(value) => Event::Done {
                    value,
                    seconds: curve.seconds,
                    curve: curve.rungs(job.length),
                },
                None => Event::Failed {
                    why: format!("its {} is no number", config.metric),
                },
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
