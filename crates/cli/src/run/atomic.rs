//! Files that are either whole or not there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// A file under a temporary name in its final folder. [`commit`](AtomicFile::commit) syncs it and renames it over the
/// old one; dropping it instead removes it. A crash leaves the old file, and at worst a stray temporary one.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    file: Option<File>,
    temporary: PathBuf,
    path: PathBuf,
}

impl AtomicFile {
    /// Opens a temporary file beside `path`.
    ///
    /// # Errors
    /// Whatever the file system says, naming `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".tmp-{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(|e| Failure::io("write", path, &e))?;
        Ok(Self {
            file: Some(file),
            temporary,
            path: path.to_owned(),
        })
    }

    /// Writes the whole content and [commits](Self::commit) it.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn finish(mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes)
            .map_err(|e| Failure::io("write", &self.path, &e))?;
        self.commit()
    }

    /// Makes the bytes written so far the content of the file.
    ///
    /// # Errors
    /// Whatever the file system says; the old file is then untouched.
    pub(crate) fn commit(mut self) -> Result<()> {
        let failed = |e: io::Error| Failure::io("write", &self.path, &e);
        if let Some(file) = self.file.take() {
            file.sync_all()
                .and_then(|()| fs::rename(&self.temporary, &self.path))
                .and_then(|()| sync_folder(&self.path))
                .map_err(failed)
                .inspect_err(|_| remove(&self.temporary))?;
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            remove(&self.temporary);
        }
    }
}

/// Replaces the content of `path` by `bytes`, all or nothing.
///
/// # Errors
/// Whatever the file system says; the old file is then untouched.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    AtomicFile::create(path)?.finish(bytes)
}

/// Only what this process made is removed, and there is nobody left to tell if even that fails.
fn remove(temporary: &Path) {
    let _ = fs::remove_file(temporary);
}

/// A rename is on the disk only once its folder is.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn replaces_the_whole_file_and_leaves_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"first").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn an_abandoned_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half of the ne").unwrap();
        assert_eq!(names(dir.path()).len(), 2);
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn errors_name_the_file_and_clean_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing/a.json");
        let text = write(&path, b"x").unwrap_err().to_string();
        assert!(text.contains("missing/a.json"), "{text}");
        let taken = dir.path().join("taken");
        fs::create_dir_all(taken.join("inner")).unwrap();
        let text = write(&taken, b"x").unwrap_err().to_string();
        assert!(text.contains("cannot write") && text.contains("taken"), "{text}");
        assert_eq!(names(dir.path()), ["taken"]);
    }
}
