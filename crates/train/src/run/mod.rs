//! The folder of a training run and its files.

mod claim;
mod events;
mod lock;
mod log;
mod rows;

use std::path::{Path, PathBuf};

use polygrad_core::{Error, ErrorKind, Result, printable};
use polygrad_nn::{Checkpoint, replace_file};
use serde_json::Value;

pub use claim::Run;
pub use events::{HParam, SummaryWriter};
pub(crate) use rows::{Columns, Mark, Rows, Unwritten};
pub use rows::{Row, Split};

/// The file that indicates that a process trains in a folder.
const LOCK: &str = "run.lock";

/// The folder of a run, and the paths of its files, which need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// The run folder at a path, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Fails unless there is a checkpoint to continue from.
    fn must_have_begun(&self) -> Result<()> {
        if self.checkpoint().exists() {
            return Ok(());
        }
        let path = shown(&self.0);
        if self.config().is_file() || self.0.join(LOCK).is_file() {
            let hint = match self.config().is_file() {
                true => "start a new run in another folder",
                false => "the run there was ended before it began: start it anew",
            };
            return Err(failed(format!("{path} has no checkpoint to go on from")).with_hint(hint));
        }
        let what = match self.0.is_dir() {
            true => "holds no run: it has no checkpoint.safetensors",
            false => "is no folder",
        };
        Err(failed(format!("{path} {what}")).with_hint("give the folder that a run has left"))
    }

    /// The [settings](crate::TrainerConfig::settings) stored in the checkpoint.
    ///
    /// # Errors
    /// A checkpoint that cannot be read, or that does not belong to a run.
    pub fn settings(&self) -> Result<Value> {
        let mut record = Checkpoint::load_config(self.checkpoint())?;
        match record.get_mut("settings") {
            Some(settings) => Ok(settings.take()),
            None => Err(Error::new(
                ErrorKind::Format,
                format!("{} is no checkpoint of a run", shown(&self.checkpoint())),
            )),
        }
    }

    /// The settings, as JSON.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// The model after the last epoch.
    pub fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// The model with the best evaluation.
    pub fn best(&self) -> PathBuf {
        self.0.join("best.safetensors")
    }

    /// Everything that is needed to resume.
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    /// The measurements, for programs.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.csv")
    }

    /// The measurements, for TensorBoard.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.out.tfevents.polygrad")
    }

    /// The measurements as a picture, drawn by the command `polygrad train`.
    pub fn curves(&self) -> PathBuf {
        self.0.join("curves.png")
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The files of a run; the last one is the one that makes a folder a run.
    fn ours(&self) -> [PathBuf; 7] {
        [
            self.config(),
            self.model(),
            self.best(),
            self.metrics(),
            self.events(),
            self.curves(),
            self.checkpoint(),
        ]
    }
}

/// A path without control characters, which could control the terminal or break the line.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// An error about a run folder that cannot be used.
pub(crate) fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Io, message.into())
}

/// A file of a run folder that [`open_own`](polygrad_nn::open_own) did not open.
pub(crate) fn unopened(action: &str, path: &Path, error: std::io::Error) -> Error {
    let is_foreign = error.kind() == std::io::ErrorKind::InvalidInput;
    let error = Error::io(action, path, error);
    match is_foreign {
        true => error.with_hint("remove it, or take another folder"),
        false => error,
    }
}

/// Replaces the content of `path` by `bytes`, atomically.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_file(path, |file| file.write_all(bytes))
}
