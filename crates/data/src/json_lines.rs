//! Files with one JSON value per line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use polygrad_core::{Error, Result, open_file};
use serde::de::DeserializeOwned;

use crate::dataset::{Dataset, fingerprint};
use crate::image::bad;

/// A file with one JSON value per line (JSONL). Only the offsets of its lines are in memory. An example is a line
/// parsed as a `T`: a type that derives serde's `Deserialize`, or `serde_json::Value`.
#[derive(Debug)]
pub struct JsonLines<T> {
    path: PathBuf,
    /// Offset of each line, and the end of the last one.
    bounds: Vec<u64>,
    line: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> JsonLines<T> {
    /// Finds the lines of a file, skipping empty ones.
    ///
    /// # Errors
    /// A file that cannot be read, or has no lines.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut lines = BufReader::with_capacity(1 << 16, open_file(path)?.0);
        let (mut bounds, mut at, mut blank) = (Vec::new(), 0, true);
        let mut begin = 0;
        loop {
            let bytes = lines.fill_buf().map_err(|e| Error::io("read", path, e))?;
            if bytes.is_empty() {
                break;
            }
            let length = bytes
                .iter()
                .position(|&b| b == b'\n')
                .map_or(bytes.len(), |end| end + 1);
            let ends = bytes[length - 1] == b'\n';
            blank &= bytes[..length].trim_ascii().is_empty();
            lines.consume(length);
            at += length as u64;
            if ends {
                if !blank {
                    bounds.push(begin);
                }
                (begin, blank) = (at, true);
            }
        }
        if !blank {
            bounds.push(begin);
        }
        if bounds.is_empty() {
            return Err(bad(path, "has no lines"));
        }
        bounds.push(at);
        Ok(Self {
            path: path.to_owned(),
            bounds,
            line: PhantomData,
        })
    }

    fn read(&self, begin: u64, length: u64) -> std::io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(begin))?;
        let mut line = Vec::new();
        file.take(length).read_to_end(&mut line)?;
        Ok(line)
    }
}

impl<T: DeserializeOwned + Send + 'static> Dataset for JsonLines<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    fn example(&self, index: usize) -> Result<T> {
        let (begin, end) = (self.bounds[index], self.bounds[index + 1]);
        let line = self
            .read(begin, end - begin)
            .map_err(|e| Error::io("read", &self.path, e))?;
        // Empty lines may follow.
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        serde_json::from_slice(line).map_err(|e| {
            let what = format!("has an example {index}, from byte {begin} on, that does not fit: {e}");
            bad(&self.path, &what)
        })
    }

    fn fingerprint(&self) -> Option<u64> {
        Some(fingerprint(&self.bounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Review {
        text: String,
        stars: u8,
    }

    #[test]
    fn lines_are_read_when_they_are_asked_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "\n{\"text\": \"good\", \"stars\": 5}\r\n\n  \n{\"text\": \"né\", \"stars\": 1}\n{\"text\": 3}";
        std::fs::write(&file, text).unwrap();
        let reviews = JsonLines::<Review>::open(&file).unwrap();
        assert_eq!(reviews.len(), 3);
        let review = |text: &str, stars| Review {
            text: text.to_owned(),
            stars,
        };
        assert_eq!(reviews.example(1).unwrap(), review("né", 1));
        assert_eq!(reviews.example(0).unwrap(), review("good", 5));
        let error = reviews.example(2).unwrap_err().to_string();
        assert!(error.contains("has an example 2, from byte"), "{error}");
        assert!(error.contains("invalid type: integer `3`"), "{error}");
        std::fs::write(&file, " \n").unwrap();
        let error = JsonLines::<Review>::open(&file).unwrap_err().to_string();
        assert!(error.contains("has no lines"), "{error}");
    }
}
