//! What a training run leaves behind: its folder and the files in it.

mod any_path;
pub(crate) mod atomic;
mod claim;
pub(crate) mod config;
pub(crate) mod curves;
pub(crate) mod events;
mod lock;
mod log;
pub(crate) mod metrics;

use std::path::{Path, PathBuf};

pub(crate) use claim::Claim;

use crate::failure::{Failure, Result, Shown};

/// The file that says that a process trains in a folder.
const LOCK: &str = "run.lock";

/// A run's folder.
#[derive(Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    /// The run that lies in `path`.
    ///
    /// # Errors
    /// No such folder, or no run in it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let folder = Self(path.to_owned());
        if folder.config().exists() {
            return Ok(folder);
        }
        if folder.checkpoint().is_file() {
            return Err(
                Failure::new(format!("{} has lost its config.json", path.shown())).fix(format!(
                    "the checkpoint has one, too, and writes it anew: {}",
                    folder.resume_command()
                )),
            );
        }
        Err(folder.no_run("it has no config.json"))
    }

    /// Fails unless there is a checkpoint to go on from.
    fn must_have_begun(&self) -> Result<()> {
        if self.checkpoint().exists() {
            return Ok(());
        }
        let path = self.0.shown();
        if self.config().is_file() || self.0.join(LOCK).is_file() {
            return Err(Failure::new(format!("{path} has no checkpoint to go on from")).fix(
                match self.config().is_file() {
                    true => "start a new run with --out and another folder".to_owned(),
                    false => format!("the run there was ended before it began: start it anew, with --out {path}"),
                },
            ));
        }
        Err(self.no_run("it has no checkpoint.safetensors"))
    }

    fn no_run(&self, why: &str) -> Failure {
        let what = match self.0.is_dir() {
            true => format!("holds no run: {why}"),
            false => "is no folder".to_owned(),
        };
        Failure::new(format!("{} {what}", self.0.shown()))
            .fix("give a folder that `polygrad train` left, such as runs/fashion-mnist-cnn-1")
    }

    /// The settings.
    pub(crate) fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// The trained parameters.
    pub(crate) fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// All that is needed to go on.
    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    /// The measurements, for programs.
    pub(crate) fn metrics(&self) -> PathBuf {
        self.0.join("metrics.csv")
    }

    /// The measurements, for TensorBoard.
    pub(crate) fn events(&self) -> PathBuf {
        self.0.join("events.out.tfevents.polygrad")
    }

    /// The measurements, for people.
    pub(crate) fn curves(&self) -> PathBuf {
        self.0.join("curves.png")
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What to type to go on with this run.
    pub(crate) fn resume_command(&self) -> String {
        format!("polygrad train --resume {}", self.0.shown())
    }

    /// The files of a run, that which makes it one last.
    fn ours(&self) -> [PathBuf; 6] {
        [
            self.config(),
            self.model(),
            self.metrics(),
            self.events(),
            self.curves(),
            self.checkpoint(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let text = RunFolder::open(dir.path()).unwrap_err().to_string();
        assert!(text.contains("has no config.json"), "{text}");
        let text = RunFolder::open(&dir.path().join("none")).unwrap_err().to_string();
        assert!(text.contains("is no folder"), "{text}");
        std::fs::write(dir.path().join("checkpoint.safetensors"), "").unwrap();
        let text = RunFolder::open(dir.path()).unwrap_err().to_string();
        assert!(
            text.contains("has lost its config.json") && text.contains("--resume"),
            "{text}"
        );
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        assert!(RunFolder::open(dir.path()).is_ok());
    }
}
