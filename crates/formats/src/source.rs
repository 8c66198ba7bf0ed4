//! Files read at positions.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use polygrad_nn::files::{in_file, reserved, unreadable};
use polygrad_nn::open_file;
use polygrad_tensor::{Error, ErrorKind, Result};

/// An open file, with its length when it was opened. It is not memory-mapped: if another program shortens the file,
/// this gives an error instead of ending the process.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) length: u64,
    file: Positioned,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, length) = open_file(path)?;
        Ok(Self {
            path: path.to_owned(),
            length,
            file: Positioned::new(file),
        })
    }

    /// A reader of `length` bytes from a position on.
    pub(crate) fn region(&self, offset: u64, length: u64) -> Region<'_> {
        Region {
            source: self,
            at: offset,
            end: offset.saturating_add(length).min(self.length),
        }
    }

    /// A reader of everything from a position on.
    pub(crate) fn from(&self, offset: u64) -> Region<'_> {
        self.region(offset, u64::MAX)
    }

    /// The `length` bytes from a position on.
    pub(crate) fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let end = offset.checked_add(length).filter(|&end| end <= self.length);
        if end.is_none() {
            return Err(damaged(format!(
                "it has {} bytes and ends within {length} that should stand at {offset}",
                self.length
            )));
        }
        let mut bytes = reserved(usize::try_from(length).unwrap_or(usize::MAX))?;
        let found = self
            .region(offset, length)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        match found as u64 == length {
            true => Ok(bytes),
            false => Err(unreadable(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Adds to an error that it is about this file.
    pub(crate) fn about(&self, error: Error) -> Error {
        in_file(error, "read", &self.path)
    }
}

/// An error about the content of a file.
#[cold]
pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, what.into()).with_hint("the file is damaged: fetch or save it again")
}

/// A part of a file, from its start to its end.
#[derive(Debug)]
pub(crate) struct Region<'a> {
    source: &'a Source,
    at: u64,
    end: u64,
}

impl Region<'_> {
    pub(crate) fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// Moves `bytes` bytes forward.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.at = self.at.saturating_add(bytes);
    }
}

impl Read for Region<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left()).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.source.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(unix)]
#[derive(Debug)]
struct Positioned(File);

#[cfg(unix)]
impl Positioned {
    fn new(file: File) -> Self {
        Self(file)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buffer, at)
    }
}

#[cfg(windows)]
#[derive(Debug)]
struct Positioned(File);

#[cfg(windows)]
impl Positioned {
    fn new(file: File) -> Self {
        Self(file)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.0, buffer, at)
    }
}

/// For systems without positioned reads: readers seek and read one after another.
#[cfg(not(any(unix, windows)))]
#[derive(Debug)]
struct Positioned(std::sync::Mutex<File>);

#[cfg(not(any(unix, windows)))]
impl Positioned {
    fn new(file: File) -> Self {
        Self(std::sync::Mutex::new(file))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        use std::io::{Seek, SeekFrom};

        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(at))?;
        file.read(buffer)
    }
}
