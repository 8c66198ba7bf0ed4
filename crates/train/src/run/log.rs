//! A file that grows line by line while a run goes on.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use polygrad_core::{Error, Result};
use polygrad_nn::{lies_at, open_own};

use super::{failed, shown, unopened, write};

/// An open file to append to.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Replaces the file at `path` by one with `bytes`, atomically, and opens it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<Self> {
        write(path, bytes)?;
        let file = open_own(path, true).map_err(|e| unopened("append to", path, e))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// Any error of the file system, and a file that was removed or replaced since it was opened.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let unwritten = |e| Error::io("append to", &self.path, e);
        if !lies_at(&self.file, &self.path).map_err(unwritten)? {
            return Err(
                failed(format!("{} was removed or replaced meanwhile", shown(&self.path)))
                    .with_hint("leave the folder alone while a run goes on"),
            );
        }
        self.file.write_all(bytes).map_err(unwritten)
    }

    /// Flushes the appended bytes to the disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("write", &self.path, e))
    }
}
