//! A run folder that this process may write to.

use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::Path;

use super::lock::Lock;
use polygrad_core::{Error, Result};

use super::{LOCK, RunFolder, failed, shown};

/// A run folder that this process trains in. Until this is dropped, no other process on this machine can train there.
#[derive(Debug)]
pub struct Run {
    folder: RunFolder,
    lock: Lock,
}

impl Run {
    /// Claims a folder for a new run, and creates it if needed. A folder that a killed run left before its first
    /// checkpoint can also be claimed.
    ///
    /// # Errors
    /// A folder that already holds a run, in which another process trains, that cannot be created, or that is the root
    /// of a file system.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        fs::create_dir_all(path).map_err(|e| Error::io("create the folder", path, e))?;
        if path.canonicalize().is_ok_and(|whole| whole.parent().is_none()) {
            return Err(failed(format!(
                "{} is where all folders are, and no folder for a run",
                shown(path)
            ))
            .with_hint("name a folder of its own, such as runs/first"));
        }
        let run = Self::lock(RunFolder::new(path))?;
        match run.ours().into_iter().find(|file| file.exists()) {
            None => Ok(run),
            Some(old) => Err(run.occupied(&old)),
        }
    }

    /// Claims the first free one of `folder/name-1`, `folder/name-2` …, for a new run.
    ///
    /// # Errors
    /// A folder that cannot be created.
    pub fn create_next(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        let folder = folder.as_ref();
        let failed = |path: &Path, e| Error::io("create the folder", path, e);
        fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let mut number = 1_u32;
        loop {
            let path = folder.join(format!("{name}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Self::lock(RunFolder::new(path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(failed(&path, e)),
            }
        }
    }

    /// Resumes a run that has a checkpoint.
    ///
    /// # Errors
    /// No such folder, no run in it or none that has begun, another process that trains there, or a folder that cannot
    /// be written.
    pub fn resume(path: impl AsRef<Path>) -> Result<Self> {
        let folder = RunFolder::new(path.as_ref());
        // Checked before locking, so that no lock file is left in a folder of something else.
        folder.must_have_begun()?;
        let run = Self::lock(folder)?;
        run.must_have_begun()?;
        Ok(run)
    }

    /// [`Run::resume`] if there is a checkpoint, else [`Run::create`]: for programs that are restarted
    /// after each interruption.
    ///
    /// # Errors
    /// Those of the two.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if RunFolder::new(path).checkpoint().exists() {
            Self::resume(path)
        } else {
            Self::create(path)
        }
    }

    fn lock(folder: RunFolder) -> Result<Self> {
        let lock = Lock::take(folder.path().join(LOCK), folder.path())?;
        Ok(Self { folder, lock })
    }

    /// Fails if the folder or the run in it is no longer the one that was claimed.
    ///
    /// # Errors
    /// It was removed or replaced, or its `config.json` was; errors of the file system.
    pub fn check(&self) -> Result<()> {
        let path = self.path();
        // Checked first, so that a folder that is replaced in between is still noticed by its lock.
        let has_config = self.config().is_file();
        let holds = self.lock.holds().map_err(|e| Error::io("read", path, e))?;
        if holds && has_config {
            return Ok(());
        }
        let what = if !path.is_dir() {
            "is gone"
        } else if holds {
            "has lost its config.json"
        } else {
            "is no longer the folder that this run began in"
        };
        Err(failed(format!(
            "{} {what}: somebody removed or replaced it meanwhile",
            shown(path)
        ))
        .with_hint("bring the folder back and go on from its last checkpoint, or start a new run"))
    }

    /// Removes only the files that the run has written so far, for a run that could not begin.
    pub fn clear(&self) {
        for file in self.ours() {
            // Errors are ignored: there may be no files, and the error that led here is the one to report.
            let _ = fs::remove_file(file);
        }
    }

    fn occupied(&self, old: &Path) -> Error {
        let hint = match self.must_have_begun() {
            Ok(()) => "choose another folder, or go on with this run",
            Err(_) => "choose another folder, or move the file away",
        };
        failed(format!(
            "{} holds a run already: there is {}",
            shown(self.path()),
            shown(old)
        ))
        .with_hint(hint)
    }
}

impl Deref for Run {
    type Target = RunFolder;

    fn deref(&self) -> &RunFolder {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b");
        let run = Run::create(&out).unwrap();
        assert!(out.is_dir());
        fs::write(out.join("notes.txt"), "mine").unwrap();
        let text = Run::create(&out).unwrap_err().to_string();
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        drop(run);
        let run = Run::create(&out).unwrap();
        fs::write(run.model(), "weights").unwrap();
        drop(run);
        let refused = || Run::create(&out).unwrap_err().to_string();
        assert!(
            refused().contains("holds a run already") && refused().contains("move the file away"),
            "{}",
            refused()
        );
        let folder = RunFolder::new(&out);
        fs::write(folder.checkpoint(), "state").unwrap();
        assert!(refused().contains("go on with this run"), "{}", refused());
        Run::resume(&out).unwrap().clear();
        assert!(Run::create(&out).is_ok());
        assert_eq!(fs::read_to_string(out.join("notes.txt")).unwrap(), "mine");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    }

    #[test]
    fn what_a_kill_has_left_does_not_stand_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            fs::write(&path, "x").unwrap();
            path
        };
        file(LOCK);
        let stray = file(".polygrad-tmp-4000000000-0");
        let other = file(".config.json.tmp");
        let text = Run::resume(dir.path()).unwrap_err().to_string();
        assert!(text.contains("has no checkpoint"), "{text}");
        assert!(stray.exists(), "a folder that is none of ours was changed");
        let run = Run::create(dir.path()).unwrap();
        super::super::write(&run.config(), b"{}").unwrap();
        assert!(!stray.exists() && other.exists());
        fs::write(run.checkpoint(), "state").unwrap();
        drop(run);
        assert!(Run::resume(dir.path()).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_was_replaced_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let run = Run::create(&out).unwrap();
        fs::write(run.config(), "{}").unwrap();
        run.check().unwrap();
        let lost = || run.check().unwrap_err().to_string();
        fs::remove_file(run.config()).unwrap();
        assert!(lost().contains("has lost its config.json"), "{}", lost());
        fs::remove_dir_all(&out).unwrap();
        assert!(lost().contains("is gone"), "{}", lost());
        let other = Run::create(&out).unwrap();
        fs::write(other.config(), "{}").unwrap();
        assert!(lost().contains("no longer the folder"), "{}", lost());
        other.check().unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().ancestors().last().unwrap();
        for path in [root, &root.join("tmp/..")] {
            let text = Run::create(path).unwrap_err().to_string();
            assert!(
                text.contains("no folder for a run") && !root.join(LOCK).exists(),
                "{text}"
            );
        }
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let text = Run::create(file.join("run")).unwrap_err().to_string();
        assert!(
            text.contains("cannot create the folder") && text.contains("file/run"),
            "{text}"
        );
    }
}
