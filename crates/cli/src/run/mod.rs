//! What a training run leaves behind: its folder and the files in it.

pub(crate) mod atomic;
pub(crate) mod config;
pub(crate) mod curves;
pub(crate) mod events;
pub(crate) mod metrics;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// A run's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes the folder `out`, or without one the first free `runs/NAME-1`, `runs/NAME-2` …
    ///
    /// # Errors
    /// A folder that holds a run already, or that cannot be made.
    pub(crate) fn create(out: Option<&Path>, name: &str) -> Result<Self> {
        let failed = |path: &Path, e: &std::io::Error| Failure::io("create the folder", path, e);
        if let Some(out) = out {
            let folder = Self(out.to_owned());
            if let Some(old) = folder.ours().into_iter().find(|file| file.exists()) {
                return Err(Failure::new(format!(
                    "{} holds a run already: there is {}",
                    out.display(),
                    old.display()
                ))
                .fix(format!(
                    "choose another folder with --out, or go on with this run: {}",
                    folder.resume_command()
                )));
            }
            fs::create_dir_all(out).map_err(|e| failed(out, &e))?;
            return Ok(folder);
        }
        let runs = Path::new("runs");
        fs::create_dir_all(runs).map_err(|e| failed(runs, &e))?;
        let mut number = 1_u32;
        loop {
            let path = runs.join(format!("{name}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(failed(&path, &e)),
            }
        }
    }

    /// The run that lies in `path`.
    ///
    /// # Errors
    /// No such folder, or no run in it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let folder = Self(path.to_owned());
        if folder.config().is_file() {
            return Ok(folder);
        }
        let what = if path.is_dir() {
            "holds no run: it has no config.json"
        } else {
            "is no folder"
        };
        Err(Failure::new(format!("{} {what}", path.display()))
            .fix("give a folder that `polygrad train` left, such as runs/fashion-mnist-cnn-1"))
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

    /// Removes what the run has left so far, and nothing else; for a run that could not begin.
    pub(crate) fn clear(&self) {
        for file in self.ours() {
            // There may be none, and where the disk refuses, the error that led here is the one to report.
            let _ = fs::remove_file(file);
        }
    }

    /// What to type to go on with this run.
    pub(crate) fn resume_command(&self) -> String {
        format!("polygrad train --resume {}", self.0.display())
    }

    fn ours(&self) -> [PathBuf; 6] {
        [
            self.config(),
            self.model(),
            self.checkpoint(),
            self.metrics(),
            self.events(),
            self.curves(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b");
        let folder = RunFolder::create(Some(&out), "x").unwrap();
        assert!(out.is_dir());
        fs::write(out.join("notes.txt"), "mine").unwrap();
        assert_eq!(RunFolder::create(Some(&out), "x").unwrap(), folder);
        fs::write(folder.model(), "weights").unwrap();
        let text = RunFolder::create(Some(&out), "x").unwrap_err().to_string();
        assert!(
            text.contains("holds a run already") && text.contains("--resume"),
            "{text}"
        );
        folder.clear();
        assert!(RunFolder::create(Some(&out), "x").is_ok());
        assert_eq!(fs::read_to_string(out.join("notes.txt")).unwrap(), "mine");
    }

    #[test]
    fn what_is_no_run_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let text = RunFolder::open(dir.path()).unwrap_err().to_string();
        assert!(text.contains("has no config.json"), "{text}");
        let text = RunFolder::open(&dir.path().join("none")).unwrap_err().to_string();
        assert!(text.contains("is no folder"), "{text}");
        fs::write(dir.path().join("config.json"), "{}").unwrap();
        assert!(RunFolder::open(dir.path()).is_ok());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let text = RunFolder::create(Some(&file.join("run")), "x").unwrap_err().to_string();
        assert!(
            text.contains("cannot create the folder") && text.contains("file/run"),
            "{text}"
        );
    }
}
