//! Runs in MLflow's file store, in the format of MLflow's own clients: a folder for each experiment, in it one for each
//! run, and in that a file for each metric and each parameter.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use polygrad_core::{Error, ErrorKind, Result};
use polygrad_nn::open_own;

use crate::run::{shown, unopened, write};
use crate::{Callback, Control, Event, Progress, Row, Split};

/// MLflow's numbers for the states of a run.
#[derive(Clone, Copy)]
enum Status {
    Running = 1,
    Finished = 3,
    Failed = 4,
}

/// A callback that writes the measurements of a run to a file store of MLflow, such as the folder `mlruns`, which
/// `mlflow ui` shows.
///
/// ```no_run
/// use polygrad_train::{MlflowLogger, TrainerConfig};
/// # use polygrad_core::Result;
/// # fn run() -> Result<()> {
/// let logger = MlflowLogger::open("mlruns", "houses", "wide")?.param("lr", 0.01)?.param("model", "mlp")?;
/// let config = TrainerConfig::epochs(10).callback(logger);
/// # Ok(())
/// # }
/// ```
///
/// A run of the same name in the same experiment is continued: measurements of steps that the trainer repeats are
/// dropped.
#[derive(Debug)]
pub struct MlflowLogger {
    folder: PathBuf,
    experiment: String,
    id: String,
    name: String,
    started: u128,
    is_over: bool,
}

impl MlflowLogger {
    /// Opens the run of a name in an experiment, and creates both if they do not exist.
    ///
    /// # Errors
    /// A folder or file that cannot be read or written.
    pub fn open(store: impl AsRef<Path>, experiment: &str, run: &str) -> Result<Self> {
        let store = std::path::absolute(store.as_ref()).map_err(|e| Error::io("find", store.as_ref(), e))?;
        let now = now();
        let (folder, experiment) = match find(&store, "name", experiment)? {
            Some(found) => found,
            None => {
                // MLflow's own ids also have this form.
                let id = (u128::from(RandomState::new().hash_one(now)) % 1_000_000_000_000_000_000).to_string();
                let folder = make(store.join(&id))?;
                let meta = [
                    ("artifact_location", uri(&folder)),
                    ("creation_time", now.to_string()),
                    ("experiment_id", quoted(&id)),
                    ("last_update_time", now.to_string()),
                    ("lifecycle_stage", "active".to_owned()),
                    ("name", quoted(experiment)),
                ];
                write(&folder.join("meta.yaml"), yaml(&meta).as_bytes())?;
                (folder, id)
            }
        };
        let (folder, id) = match find(&folder, "run_name", run)? {
            Some(found) => found,
            None => {
                let random = || RandomState::new().hash_one(now);
                let id = format!("{:016x}{:016x}", random(), random());
                (make(folder.join(&id))?, id)
            }
        };
        let logger = Self {
            experiment,
            id,
            name: run.to_owned(),
            started: field(&folder, "start_time")
                .and_then(|time| time.parse().ok())
                .unwrap_or(now),
            folder,
            is_over: false,
        };
        for part in ["metrics", "params", "tags", "artifacts"] {
            nested(&logger.folder, part.split('/'))?;
        }
        logger.put("tags", "mlflow.runName", run)?;
        logger.set(Status::Running)?;
        Ok(logger)
    }

    /// Records a parameter of the run.
    ///
    /// # Errors
    /// A name that cannot be a file name; errors of the file system.
    pub fn param(self, name: &str, value: impl std::fmt::Display) -> Result<Self> {
        self.put("params", name, &value.to_string())?;
        Ok(self)
    }

    fn put(&self, part: &str, name: &str, value: &str) -> Result<()> {
        write(&self.path(part, name)?, value.as_bytes())
    }

    /// The file of a metric, a parameter or a tag. Names may contain folders.
    fn path(&self, part: &str, name: &str) -> Result<PathBuf> {
        let known = |c: char| c.is_alphanumeric() || "_-. :/".contains(c);
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !name.chars().all(known) || !name.split('/').all(plain) {
            return Err(Error::invalid(format!("MLflow cannot call anything {name:?}"))
                .with_hint("letters, digits, `_`, `-`, `.`, `:`, spaces, and `/` between parts"));
        }
        let (folders, name) = match name.rsplit_once('/') {
            Some((folders, name)) => (Some(folders), name),
            None => (None, name),
        };
        let parts = folders.into_iter().flat_map(|folders| folders.split('/'));
        Ok(nested(&self.folder, [part].into_iter().chain(parts))?.join(name))
    }

    fn set(&self, status: Status) -> Result<()> {
        let over = !matches!(status, Status::Running);
        let meta = [
            ("artifact_uri", uri(&self.folder.join("artifacts"))),
            ("end_time", if over { now().to_string() } else { "null".to_owned() }),
            ("entry_point_name", quoted("")),
            ("experiment_id", quoted(&self.experiment)),
            ("lifecycle_stage", "active".to_owned()),
            ("run_id", quoted(&self.id)),
            ("run_name", quoted(&self.name)),
            ("run_uuid", quoted(&self.id)),
            ("source_name", quoted("")),
            ("source_type", "4".to_owned()),
            ("source_version", quoted("")),
            ("start_time", self.started.to_string()),
            ("status", (status as u8).to_string()),
            ("tags", "[]".to_owned()),
            ("user_id", quoted("")),
        ];
        write(&self.folder.join("meta.yaml"), yaml(&meta).as_bytes())
    }

    fn log(&self, row: &Row, progress: &Progress<'_>) -> Result<()> {
        let split = match row.split {
            Split::Train => "train",
            Split::Validation => progress.validation,
        };
        let mut values = vec![(format!("loss/{split}"), row.loss)];
        let names = progress.metrics.iter().map(|name| format!("{name}/{split}"));
        values.extend(names.zip(row.metrics.iter().copied()));
        if row.split == Split::Train {
            values.push(("learning_rate".to_owned(), row.learning_rate));
        }
        for (name, value) in values {
            let path = self.path("metrics", &name)?;
            let failed = |e| Error::io("append to", &path, e);
            let mut file = open_own(&path, true).map_err(|e| unopened("append to", &path, e))?;
            file.write_all(format!("{} {value} {}\n", now(), row.step).as_bytes())
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Drops measurements after `step` steps, and lines that a crash cut short.
    fn rewind(&self, step: u64, folder: &Path) -> Result<()> {
        for entry in entries(folder)? {
            if entry.is_symlink() {
                return Err(linked(&entry));
            }
            if entry.is_dir() {
                self.rewind(step, &entry)?;
                continue;
            }
            let text = fs::read_to_string(&entry).map_err(|e| Error::io("read", &entry, e))?;
            let of = |line: &str| line.split(' ').nth(2).and_then(|step| step.parse::<u64>().ok());
            let kept = |line: &&str| line.ends_with('\n') && of(line.trim_end()).is_some_and(|at| at <= step);
            let lines: String = text.split_inclusive('\n').filter(kept).collect();
            if lines != text {
                write(&entry, lines.as_bytes())?;
            }
        }
        Ok(())
    }
}

impl Callback for MlflowLogger {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> Result<Control> {
        match event {
            Event::Begin => self.rewind(progress.step, &self.folder.join("metrics"))?,
            Event::Row(row) => self.log(row, progress)?,
            Event::End => {
                self.set(Status::Finished)?;
                self.is_over = true;
            }
            _ => {}
        }
        Ok(Control::Continue)
    }
}

impl Drop for MlflowLogger {
    fn drop(&mut self) {
        if !self.is_over {
            // Errors are ignored: the error that led here is the one to report.
            let _ = self.set(Status::Failed);
        }
    }
}

fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis())
}

fn make(folder: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&folder).map_err(|e| Error::io("create the folder", &folder, e))?;
    Ok(folder)
}

/// A folder in a folder, created if it does not exist. Fails at links, which could lead out of it, since the run may
/// have been prepared by someone else.
fn nested<'a>(folder: &Path, parts: impl Iterator<Item = &'a str>) -> Result<PathBuf> {
    let mut path = folder.to_owned();
    for part in parts {
        path.push(part);
        if path.is_symlink() {
            return Err(linked(&path));
        }
        make(path.clone())?;
    }
    Ok(path)
}

fn linked(path: &Path) -> Error {
    let text = format!("{} is a link: what is written there would land elsewhere", shown(path));
    Error::new(ErrorKind::Io, text).with_hint("remove it, or name another run")
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("read the folder", folder, e);
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect()
}

/// The folder in `folder` whose `meta.yaml` has this value of a field, and its name.
fn find(folder: &Path, key: &str, value: &str) -> Result<Option<(PathBuf, String)>> {
    if !folder.exists() {
        return Ok(None);
    }
    if !folder.is_dir() {
        return Err(Error::new(ErrorKind::Io, format!("{} is no folder", shown(folder))));
    }
    let found = entries(folder)?
        .into_iter()
        .find(|entry| !entry.is_symlink() && field(entry, key).as_deref() == Some(value));
    Ok(found.map(|entry| {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (entry, name)
    }))
}

/// A field of a `meta.yaml`, in which each value is on a line of its own, quoted or not.
fn field(folder: &Path, key: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join("meta.yaml")).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))?;
    match value.as_bytes().first()? {
        b'"' => serde_json::from_str(value).ok(),
        b'\'' => Some(value.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'")),
        _ => Some(value.to_owned()),
    }
}

/// A JSON string, which is also valid YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn uri(path: &Path) -> String {
    quoted(&format!("file://{}", path.to_string_lossy()))
}

fn yaml(fields: &[(&str, String)]) -> String {
    fields.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}
