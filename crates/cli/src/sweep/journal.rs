//! The state of a sweep: a folder with a journal that all processes of the sweep append to, each while it holds the
//! lock.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use polygrad::nn::open_own;
use polygrad::train::RunFolder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::Config;
use crate::failure::{Failure, Result, Shown};
use crate::run::atomic::AtomicFile;

/// How often a trial is started if its process is killed each time.
const ATTEMPTS: usize = 3;

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    /// Trials are counted from 1.
    trial: usize,
    /// Seconds since 1970.
    at: u64,
    #[serde(flatten)]
    event: Event,
}

/// An event of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    /// It was started, with a value for each setting.
    Start {
        values: Vec<Value>,
        by: String,
    },
    /// Another process continues it.
    Again {
        by: String,
    },
    /// It was stopped together with the sweep.
    Stopped,
    /// A run finished, and another seed follows.
    Ran(Run),
    /// Its last run finished.
    Done(Run),
    /// It was ended early, in this run or after it, since others were better at that point.
    Pruned {
        seconds: f64,
        curve: Vec<(u64, f64)>,
    },
    Failed {
        why: String,
    },
    /// Its process was killed. This is not in the journal, since the kill may have ended the sweep, too: such a trial
    /// is one that is running but not locked.
    #[serde(skip)]
    Lost,
}

/// A run of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// Its result, or what it had reached when it was ended early.
    pub(super) value: f64,
    pub(super) seconds: f64,
    /// The points of the run that were passed, and the measurements there.
    pub(super) curve: Vec<(u64, f64)>,
}

/// The state of a trial according to the journal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) number: usize,
    pub(super) values: Vec<Value>,
    pub(super) state: State,
    /// Its runs with one seed after the other, without the one in progress.
    pub(super) runs: Vec<Run>,
    /// The process that runs it, or ran it last.
    by: String,
    /// How often it was started since it was last stopped properly.
    attempts: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Running,
    Done,
    Pruned,
    Failed { why: String },
}

/// A trial that this process runs.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) number: usize,
    pub(super) values: Vec<Value>,
    /// Its runs that have finished.
    pub(super) runs: Vec<Run>,
    /// Whether it was started before.
    pub(super) again: bool,
    /// A lock that keeps other processes away until all copies of this handle are closed.
    pub(super) lock: File,
}

/// The next thing to do.
#[derive(Debug)]
pub(super) enum Next {
    Trial(Claimed),
    /// Other processes run all remaining trials.
    Wait(String),
    Over,
}

/// The folder of a sweep.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// Opens the journal of a sweep, or creates it.
    ///
    /// # Errors
    /// A folder that cannot be written, or that belongs to another sweep.
    pub(super) fn open(config: &Config, text: &[u8]) -> Result<Self> {
        let journal = Self {
            folder: config.folder.clone(),
        };
        let locks = journal.folder.join("locks");
        fs::create_dir_all(&locks).map_err(|e| Failure::io("create the folder", &locks, &e))?;
        let _lock = journal.lock()?;
        let told = told(&journal.folder);
        if told.exists() {
            if !config.is_same_search(&Config::read(&told)?) {
                let folder = journal.folder.shown();
                return Err(Failure::new(format!(
                    "{folder} is the folder of another sweep, that of {}",
                    told.shown()
                ))
                .fix("name another one, as in folder = \"runs/second\""));
            }
        } else {
            let mut file = AtomicFile::create(&told)?;
            file.append(text)?;
            file.commit()?;
        }
        Ok(journal)
    }

    /// The trials of the sweep in a folder, and its configuration.
    ///
    /// # Errors
    /// No sweep, or one whose files are damaged.
    pub(super) fn look(folder: &Path) -> Result<(Config, Vec<Trial>)> {
        if !told(folder).is_file() {
            return Err(
                Failure::new(format!("{} holds no sweep: it has no sweep.toml", folder.shown()))
                    .fix("give the folder that `polygrad sweep CONFIG.toml` named"),
            );
        }
        let path = folder.join("journal.jsonl");
        let text = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            text => text.map_err(|e| Failure::io("read", &path, &e))?,
        };
        Ok((Config::read(&told(folder))?, trials(&path, whole_lines(&text))?))
    }

    /// Claims a trial: one left by a killed process, or a new one, for which `suggest` returns the values.
    ///
    /// # Errors
    /// A journal that cannot be read or written.
    pub(super) fn claim(&self, trials: usize, suggest: impl FnOnce(&[Trial], usize) -> Vec<Value>) -> Result<Next> {
        let mut file = self.lock()?;
        let known = self.read(&mut file)?;
        let mut waited = Vec::new();
        for trial in known.iter().filter(|trial| trial.state == State::Running) {
            let Some(lock) = self.take(trial.number)? else {
                waited.push(format!("{} ({})", trial.number, trial.by));
                continue;
            };
            if trial.attempts >= ATTEMPTS {
                let why = format!("its process was killed {ATTEMPTS} times");
                self.append(&mut file, trial.number, Event::Failed { why })?;
                continue;
            }
            self.append(&mut file, trial.number, Event::Again { by: me() })?;
            return Ok(Next::Trial(Claimed {
                number: trial.number,
                values: trial.values.clone(),
                runs: trial.runs.clone(),
                again: true,
                lock,
            }));
        }
        let number = known.len() + 1;
        if number > trials {
            return Ok(match waited.is_empty() {
                true => Next::Over,
                false => Next::Wait(waited.join(", ")),
            });
        }
        let Some(lock) = self.take(number)? else {
            let path = self.path(&format!("locks/{number}"));
            return Err(
                Failure::new(format!("{} is locked, and no trial is known to have it", path.shown()))
                    .fix("end the process that has it, or take another folder"),
            );
        };
        let values = suggest(&known, number);
        let event = Event::Start {
            values: values.clone(),
            by: me(),
        };
        self.append(&mut file, number, event)?;
        Ok(Next::Trial(Claimed {
            number,
            values,
            runs: Vec::new(),
            again: false,
            lock,
        }))
    }

    /// Records an event of a trial.
    ///
    /// # Errors
    /// A journal that cannot be written.
    pub(super) fn add(&self, trial: usize, event: Event) -> Result<()> {
        let mut file = self.lock()?;
        self.append(&mut file, trial, event)
    }

    /// All trials that were started, in the order of their numbers.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub(super) fn trials(&self) -> Result<Vec<Trial>> {
        self.read(&mut self.lock()?)
    }

    /// A run of a trial, counted from 0.
    pub(super) fn run(&self, config: &Config, trial: usize, run: usize) -> RunFolder {
        let folder = folder(&self.folder, trial);
        RunFolder::new(match config.seeds {
            1 => folder,
            _ => folder.join(format!("seed-{run}")),
        })
    }

    /// The file whose existence stops a trial's process.
    pub(super) fn stop_file(&self, trial: usize) -> PathBuf {
        self.path(&format!("locks/{trial}.stop"))
    }

    /// The file with the output of a trial's process.
    pub(super) fn output(&self, trial: usize) -> PathBuf {
        self.path(&format!("trial-{trial:04}.txt"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The journal, locked against other processes until it is closed.
    fn lock(&self) -> Result<File> {
        let path = self.path("journal.jsonl");
        let file = open_own(&path, true).map_err(|e| Failure::io("write", &path, &e))?;
        file.lock().map_err(|e| unlockable(&path, &e))?;
        Ok(file)
    }

    /// The lock of a trial, unless a running process has it.
    fn take(&self, trial: usize) -> Result<Option<File>> {
        let path = self.path(&format!("locks/{trial}"));
        let file = open_own(&path, false).map_err(|e| Failure::io("write", &path, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(unlockable(&path, &error)),
        }
    }

    fn read(&self, file: &mut File) -> Result<Vec<Trial>> {
        let path = self.path("journal.jsonl");
        let mut text = Vec::new();
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut text));
        read.map_err(|e| Failure::io("read", &path, &e))?;
        trials(&path, whole_lines(&text))
    }

    /// Appends a line; it replaces a line that was cut short by a kill.
    fn append(&self, file: &mut File, trial: usize, event: Event) -> Result<()> {
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let mut line = serde_json::to_vec(&Line { trial, at, event })
            .map_err(|error| Failure::new(format!("cannot write what happened to trial {trial}: {error}")))?;
        line.push(b'\n');
        let mut written = || {
            let mut text = Vec::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut text)?;
            file.set_len(whole_lines(&text).len() as u64)?;
            file.write_all(&line)?;
            file.sync_data()
        };
        written().map_err(|e| Failure::io("write", &self.path("journal.jsonl"), &e))
    }
}

/// The copy of the sweep's configuration file.
fn told(folder: &Path) -> PathBuf {
    folder.join("sweep.toml")
}

/// The folder of a trial, in the folder of a sweep.
pub(super) fn folder(folder: &Path, trial: usize) -> PathBuf {
    folder.join(format!("trial-{trial:04}"))
}

/// This process's name in the journal.
fn me() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let host = host.map_or_else(|_| "this machine".to_owned(), |host| host.trim().to_owned());
    format!("process {} on {host}", std::process::id())
}

fn unlockable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot lock {}: {error}", path.shown()))
        .fix("take a folder on a file system with locks: without them two processes would do the same trial")
}

/// A text up to the end of its last whole line.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &text[..end]
}

/// The trials recorded in lines.
fn trials(path: &Path, text: &[u8]) -> Result<Vec<Trial>> {
    let mut trials: Vec<Trial> = Vec::new();
    for (i, line) in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .enumerate()
    {
        let bad = |what: String| {
            Failure::new(format!("{}, line {}: {what}", path.shown(), i + 1))
                .fix("mend the line, or begin another sweep in another folder")
        };
        let line: Line = serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
        let count = trials.len();
        match line.event {
            Event::Start { values, by } if line.trial == count + 1 => trials.push(Trial {
                number: line.trial,
                values,
                state: State::Running,
                runs: Vec::new(),
                by,
                attempts: 1,
            }),
            event => match line.trial.checked_sub(1).and_then(|at| trials.get_mut(at)) {
                Some(trial) => trial.take(event),
                None => return Err(bad(format!("there is no trial {}", line.trial))),
            },
        }
    }
    Ok(trials)
}

impl Trial {
    fn take(&mut self, event: Event) {
        match event {
            // A number is used only once.
            Event::Start { .. } | Event::Lost => {}
            Event::Again { by } => {
                self.by = by;
                self.attempts += 1;
            }
            Event::Stopped => self.attempts = 0,
            Event::Ran(run) => {
                self.runs.push(run);
                self.attempts = 1;
            }
            Event::Done(run) => {
                self.runs.push(run);
                self.state = State::Done;
            }
            Event::Pruned { seconds, curve } => {
                if let Some(&(_, value)) = curve.last() {
                    self.runs.push(Run { value, seconds, curve });
                }
                self.state = State::Pruned;
            }
            Event::Failed { why } => self.state = State::Failed { why },
        }
    }

    /// Its final result, the mean of its runs.
    pub(super) fn value(&self) -> Option<f64> {
        self.reached().filter(|_| self.state == State::Done)
    }

    /// The mean of what its runs reached, if it is done or was ended early.
    pub(super) fn reached(&self) -> Option<f64> {
        let has_ended = matches!(self.state, State::Done | State::Pruned) && !self.runs.is_empty();
        has_ended.then(|| self.runs.iter().map(|run| run.value).sum::<f64>() / self.runs.len() as f64)
    }

    /// The duration of its runs together, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.runs.iter().map(|run| run.seconds).sum()
    }

    /// The trial with the best result, the highest or lowest as the sweep is configured.
    pub(super) fn best<'a>(config: &Config, trials: &'a [Self]) -> Option<&'a Self> {
        let cost = |trial: &&Self| config.cost(trial.value().unwrap_or(f64::NAN));
        let done = trials.iter().filter(|trial| trial.value().is_some());
        done.min_by(|a, b| cost(a).total_cmp(&cost(b)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::config::tests::{PLAIN, config};
    use super::*;

    fn scene() -> (tempfile::TempDir, Config) {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(PLAIN).unwrap();
        config.folder = folder.path().join("sweep");
        (folder, config)
    }

    fn open(config: &Config) -> Journal {
        Journal::open(config, PLAIN.as_bytes()).unwrap()
    }

    fn claim(journal: &Journal) -> Next {
        journal.claim(3, |known, _| vec![(known.len() as f64).into()]).unwrap()
    }

    fn trial(next: Next) -> Claimed {
        match next {
            Next::Trial(claimed) => claimed,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::sweep) fn ran(value: f64, curve: Vec<(u64, f64)>) -> Run {
        let seconds = 1.0;
        Run { value, seconds, curve }
    }

    pub(in crate::sweep) fn done(number: usize, values: Vec<Value>, value: f64) -> Trial {
        Trial {
            number,
            values,
            state: State::Done,
            runs: vec![ran(value, Vec::new())],
            by: me(),
            attempts: 1,
        }
    }

    #[test]
    fn each_trial_is_given_once_and_taken_up_when_its_process_is_gone() {
        let (_folder, config) = scene();
        let (one, two) = (open(&config), open(&config));
        let first = trial(claim(&one));
        let second = trial(claim(&two));
        assert_eq!((first.number, second.number, second.again), (1, 2, false));
        assert_eq!(second.values, [Value::from(1.0)]);
        // As if the process of the first was killed.
        drop(first.lock);
        let again = trial(claim(&two));
        assert!(again.number == 1 && again.again && again.values == [Value::from(0.0)]);
        let third = trial(claim(&one));
        assert!(matches!(claim(&one), Next::Wait(who) if who.contains("1 (process ") && who.contains("3 (")));
        for trial in [again.number, second.number, third.number] {
            one.add(trial, Event::Done(ran(trial as f64, vec![(1, 0.5)]))).unwrap();
        }
        assert!(matches!(claim(&two), Next::Over));
        let (read, trials) = Journal::look(&config.folder).unwrap();
        assert!(read.is_same_search(&config));
        assert_eq!(Trial::best(&config, &trials).unwrap().number, 1);
    }

    #[test]
    fn a_trial_that_is_killed_again_and_again_fails() {
        let (_folder, config) = scene();
        let journal = open(&config);
        for _ in 0..ATTEMPTS {
            assert_eq!(trial(claim(&journal)).number, 1);
        }
        let second = trial(claim(&journal));
        assert_eq!(second.number, 2);
        let trials = journal.trials().unwrap();
        assert!(matches!(&trials[0].state, State::Failed { why } if why.contains("killed 3 times")));
        // A trial that was stopped properly is not lost.
        for _ in 0..2 * ATTEMPTS {
            journal.add(2, Event::Stopped).unwrap();
        }
        drop(second);
        assert_eq!(trial(claim(&journal)).number, 2);
    }

    #[test]
    fn a_line_that_was_cut_short_is_written_anew() {
        let (_folder, config) = scene();
        let journal = open(&config);
        let first = trial(claim(&journal));
        let path = config.folder.join("journal.jsonl");
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"trial\":1,\"at\":17").unwrap();
        assert_eq!(Journal::look(&config.folder).unwrap().1.len(), 1);
        journal
            .add(first.number, Event::Failed { why: "x".to_owned() })
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
        assert_eq!(
            journal.trials().unwrap()[0].state,
            State::Failed { why: "x".to_owned() }
        );
        file.write_all(b"{}\n").unwrap();
        let error = journal.trials().unwrap_err().to_string();
        assert!(
            error.contains("journal.jsonl, line 3: missing field `trial`"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_has_one_sweep() {
        let (folder, config) = scene();
        open(&config);
        let mut other = config.clone();
        other.trials = 9;
        open(&other);
        other.metric = "accuracy".to_owned();
        let error = Journal::open(&other, b"").unwrap_err().to_string();
        assert!(error.contains("is the folder of another sweep"), "{error}");
        let error = Journal::look(folder.path()).unwrap_err().to_string();
        assert!(error.contains("holds no sweep"), "{error}");
    }
}
