//! The lock of a run folder: one process at a time trains there.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use polygrad_core::{Error, Result};
use polygrad_nn::{lies_at, open_own};

use super::{failed, shown, unopened};

/// How long the owner of a lock may take to write its process id: on a busy disk that can take a while.
const PATIENCE: Duration = Duration::from_secs(20);

/// A locked file that contains the owner's process id. The system releases the lock when the process ends, however it
/// ends. Dropping this removes the file; only a kill leaves it behind.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks the file at `path`, which need not exist; it belongs to the run in `folder`.
    ///
    /// # Errors
    /// Another process holds it; a link or not a file; a file system that has no locks or cannot be written.
    pub(super) fn take(path: PathBuf, folder: &Path) -> Result<Self> {
        loop {
            let mut file = open_own(&path, false).map_err(|e| unopened("write", &path, e))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(taken(&mut file, folder)),
                Err(TryLockError::Error(error)) => {
                    return Err(failed(format!("cannot lock {}: {error}", shown(&path))).with_hint(
                        "take a folder on a local disk: without locks nothing keeps two processes from one run",
                    ));
                }
            }
            // Between opening and locking, the previous owner may have removed the file.
            if !lies_at(&file, &path).map_err(|e| Error::io("read", &path, e))? {
                continue;
            }
            file.set_len(0)
                .and_then(|()| writeln!(file, "{}", std::process::id()))
                .map_err(|e| Error::io("write", &path, e))?;
            return Ok(Self { file, path });
        }
    }

    /// Whether the locked file is still at its path.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn holds(&self) -> io::Result<bool> {
        lies_at(&self.file, &self.path)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only on Unix can the file's identity be checked here. A file that cannot be removed does no harm, since it is
        // no longer locked.
        if cfg!(unix) && self.holds().is_ok_and(|holds| holds) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn taken(file: &mut File, folder: &Path) -> Error {
    let started = Instant::now();
    let mut text = String::new();
    // Some systems do not let other processes read a locked file; then the process id stays unknown.
    while file.read_to_string(&mut text).is_ok() && !text.ends_with('\n') && started.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    let owner = match text.trim().parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        Err(_) => "another process".to_owned(),
    };
    failed(format!("{owner} is training in {}", shown(folder)))
        .with_hint("wait for it to end, or end it; a new run can take another folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.lock");
        fs::write(&path, "4000000000\nof a process that was killed").unwrap();
        let lock = Lock::take(path.clone(), dir.path()).unwrap();
        let text = Lock::take(path.clone(), dir.path()).unwrap_err().to_string();
        let whose = format!("process {} is training in {}", std::process::id(), dir.path().display());
        assert!(text.contains(&whose) && text.contains("; wait for it"), "{text}");
        drop(lock);
        assert!(!path.exists());
        assert!(Lock::take(path, dir.path()).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_that_was_replaced_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.lock");
        let lock = Lock::take(path.clone(), dir.path()).unwrap();
        assert!(lock.holds().unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!lock.holds().unwrap());
        let next = Lock::take(path.clone(), dir.path()).unwrap();
        assert!(!lock.holds().unwrap() && next.holds().unwrap());
        drop(lock);
        assert!(next.holds().unwrap(), "the old owner removed the new one's lock");
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_that_is_a_link_harms_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("run.lock"));
        fs::write(&victim, "precious").unwrap();
        let refused = || {
            let error = Lock::take(path.clone(), dir.path()).unwrap_err().to_string();
            assert!(
                error.contains("run.lock: it is a link") && error.contains("remove it"),
                "{error}"
            );
            fs::remove_file(&path).unwrap();
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
        };
        std::os::unix::fs::symlink("victim", &path).unwrap();
        refused();
        fs::hard_link(&victim, &path).unwrap();
        refused();
        std::os::unix::fs::symlink("none", &path).unwrap();
        refused();
        assert!(!dir.path().join("none").exists());
    }
}
