//! Files that may be compressed by gzip.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use polygrad_core::{Error, Result, open_file};

use crate::image::bad;

/// The bytes of a file, decompressed while reading.
pub(crate) enum Input {
    Plain(BufReader<File>),
    #[cfg(feature = "gzip")]
    Gzip(flate2::bufread::MultiGzDecoder<BufReader<File>>),
}

impl Input {
    /// Opens a file and detects compression by its first bytes; also returns its length on disk.
    ///
    /// # Errors
    /// A file that cannot be read, or is compressed while the feature `gzip` is off.
    pub(crate) fn open(path: &Path) -> Result<(Self, u64)> {
        let (file, length) = open_file(path)?;
        let mut plain = BufReader::with_capacity(1 << 16, file);
        let begin = plain.fill_buf().map_err(|e| Error::io("read", path, e))?;
        if !begin.starts_with(&[0x1f, 0x8b]) {
            return Ok((Self::Plain(plain), length));
        }
        #[cfg(feature = "gzip")]
        return Ok((Self::Gzip(flate2::bufread::MultiGzDecoder::new(plain)), length));
        #[cfg(not(feature = "gzip"))]
        Err(bad(path, "is compressed by gzip, which the feature gzip reads"))
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(bytes),
            #[cfg(feature = "gzip")]
            Self::Gzip(stream) => stream.read(bytes),
        }
    }
}

/// The error for a failed read within a file: it ended too early, or the compressed stream is damaged.
pub(crate) fn broken(path: &Path, error: std::io::Error, early: &str) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => bad(path, &format!("is truncated: it {early}")),
        ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            bad(path, &format!("is corrupt: its gzip stream is damaged ({error})"))
        }
        _ => Error::io("read", path, error),
    }
}
