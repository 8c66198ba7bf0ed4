//! A run folder that this process may write to.

use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::Path;

use super::lock::Lock;
use super::{LOCK, RunFolder};
use crate::failure::{Failure, Result, Shown};

/// The only claim to a run folder on this machine: until it goes, no other process trains there.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: RunFolder,
    lock: Lock,
}

impl Claim {
    /// Makes the folder `out`, or without one the first free `runs/NAME-1`, `runs/NAME-2` …, for a new run. A folder that a kill has left
    /// before its run had a first checkpoint is taken, too.
    ///
    /// # Errors
    /// A folder that holds a run already, in which another process trains, or that cannot be made.
    pub(crate) fn new_run(out: Option<&Path>, name: &str) -> Result<Self> {
        let failed = |path: &Path, e: &std::io::Error| Failure::io("create the folder", path, e);
        if let Some(out) = out {
            fs::create_dir_all(out).map_err(|e| failed(out, &e))?;
            let claim = Self::lock(RunFolder(out.to_owned()))?;
            return match claim.ours().into_iter().find(|file| file.exists()) {
                None => Ok(claim),
                Some(old) => Err(claim.occupied(&old)),
            };
        }
        let runs = Path::new("runs");
        fs::create_dir_all(runs).map_err(|e| failed(runs, &e))?;
        let mut number = 1_u32;
        loop {
            let path = runs.join(format!("{name}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Self::lock(RunFolder(path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(failed(&path, &e)),
            }
        }
    }

    /// Takes over the run in `path`, which has a checkpoint.
    ///
    /// # Errors
    /// No such folder, no run in it or none that has begun, another process that trains there, or a folder that cannot be written.
    pub(crate) fn of_run(path: &Path) -> Result<Self> {
        let folder = RunFolder(path.to_owned());
        // Nothing is left in a folder of something else.
        folder.must_have_begun()?;
        let claim = Self::lock(folder)?;
        claim.must_have_begun()?;
        Ok(claim)
    }

    fn lock(folder: RunFolder) -> Result<Self> {
        let lock = Lock::take(folder.0.join(LOCK), &folder.0)?;
        let claim = Self { folder, lock };
        claim.sweep();
        Ok(claim)
    }

    /// Fails unless this still is the folder that was claimed, with its run in it.
    ///
    /// # Errors
    /// It was removed or replaced, or its `config.json` was; or whatever the file system says.
    pub(crate) fn check(&self) -> Result<()> {
        let path = self.path();
        // Asked first: of a folder that is replaced between the two questions, the lock is the one that tells.
        let has_config = self.config().is_file();
        let holds = self.lock.holds().map_err(|e| Failure::io("read", path, &e))?;
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
        Err(Failure::new(format!(
            "{} {what}: somebody removed or replaced it meanwhile",
            path.shown()
        ))
        .fix("bring the folder back and go on from its last checkpoint with --resume, or start a new run"))
    }

    /// Removes what the run has left so far, and nothing else; for a run that could not begin.
    pub(crate) fn clear(&self) {
        for file in self.ours() {
            // There may be none, and where the disk refuses, the error that led here is the one to report.
            let _ = fs::remove_file(file);
        }
    }

    /// Removes the half-written files of processes that were killed: whoever wrote them held this lock.
    fn sweep(&self) {
        let temporary = self.ours().map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            format!(".{name}.tmp-")
        });
        let stray = |name: &str| {
            let rest = temporary.iter().find_map(|begin| name.strip_prefix(begin.as_str()));
            rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit() || c == '-'))
        };
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(stray)) {
            // Only its place on the disk is lost if it stays.
            let _ = fs::remove_file(entry.path());
        }
    }

    fn occupied(&self, old: &Path) -> Failure {
        let failure = Failure::new(format!(
            "{} holds a run already: there is {}",
            self.path().shown(),
            old.shown()
        ));
        match self.must_have_begun() {
            Ok(()) => failure.fix(format!(
                "choose another folder with --out, or go on with this run: {}",
                self.resume_command()
            )),
            Err(_) => failure.fix("choose another folder with --out, or move the file away"),
        }
    }
}

impl Deref for Claim {
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
        let claim = Claim::new_run(Some(&out), "x").unwrap();
        assert!(out.is_dir());
        fs::write(out.join("notes.txt"), "mine").unwrap();
        let text = Claim::new_run(Some(&out), "x").unwrap_err().to_string();
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        drop(claim);
        let claim = Claim::new_run(Some(&out), "x").unwrap();
        fs::write(claim.model(), "weights").unwrap();
        drop(claim);
        let refused = || Claim::new_run(Some(&out), "x").unwrap_err().to_string();
        assert!(
            refused().contains("holds a run already") && refused().contains("move the file away"),
            "{}",
            refused()
        );
        let folder = RunFolder(out.clone());
        fs::write(folder.checkpoint(), "state").unwrap();
        assert!(refused().contains("--resume"), "{}", refused());
        Claim::of_run(&out).unwrap().clear();
        assert!(Claim::new_run(Some(&out), "x").is_ok());
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
        let stray = [
            ".checkpoint.safetensors.tmp-17-0",
            ".config.json.tmp-17",
            ".metrics.csv.tmp-17-3",
        ]
        .map(file);
        let others = [".model.onnx.tmp-17-0", ".config.json.tmp-mine", "config.json.tmp-17"].map(file);
        let text = Claim::of_run(dir.path()).unwrap_err().to_string();
        assert!(
            text.contains("has no checkpoint") && text.contains(&format!("--out {}", dir.path().display())),
            "{text}"
        );
        assert!(stray[0].exists(), "a folder that is none of ours was changed");
        let claim = Claim::new_run(Some(dir.path()), "x").unwrap();
        assert!(stray.iter().all(|path| !path.exists()) && others.iter().all(|path| path.exists()));
        fs::write(claim.checkpoint(), "state").unwrap();
        drop(claim);
        assert!(Claim::of_run(dir.path()).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_was_replaced_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let claim = Claim::new_run(Some(&out), "x").unwrap();
        fs::write(claim.config(), "{}").unwrap();
        claim.check().unwrap();
        let lost = || claim.check().unwrap_err().to_string();
        fs::remove_file(claim.config()).unwrap();
        assert!(lost().contains("has lost its config.json"), "{}", lost());
        fs::remove_dir_all(&out).unwrap();
        assert!(lost().contains("is gone"), "{}", lost());
        let other = Claim::new_run(Some(&out), "x").unwrap();
        fs::write(other.config(), "{}").unwrap();
        assert!(lost().contains("no longer the folder"), "{}", lost());
        other.check().unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let text = Claim::new_run(Some(&file.join("run")), "x").unwrap_err().to_string();
        assert!(
            text.contains("cannot create the folder") && text.contains("file/run"),
            "{text}"
        );
    }
}
