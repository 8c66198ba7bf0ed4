//! The library's atomic files, with this command's errors.

use std::io::Write;
use std::path::{Path, PathBuf};

use polygrad::nn;

use crate::failure::{Failure, Result};

/// A file that [`commit`](Self::commit) puts in the place of the old one. Until then, and if it is dropped, the old
/// file stays.
#[derive(Debug)]
pub struct AtomicFile {
    file: nn::AtomicFile,
    path: PathBuf,
}

impl AtomicFile {
    /// Opens a temporary file beside `path`.
    ///
    /// # Errors
    /// Errors of the file system, with `path`, as for the other methods.
    pub fn create(path: &Path) -> Result<Self> {
        let file = nn::AtomicFile::create(path).map_err(|e| Failure::io("write", path, &e))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Appends `bytes`.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(|e| Failure::io("write", &self.path, &e))
    }

    /// Makes the bytes written so far the content of the file. If that fails, the old file is unchanged.
    pub fn commit(self) -> Result<()> {
        self.file.commit().map_err(|e| Failure::io("write", &self.path, &e))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn errors_name_the_file_and_clean_up() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &Path, bytes: &[u8]| {
            let mut file = AtomicFile::create(path)?;
            file.append(bytes)?;
            file.commit()
        };
        let path = dir.path().join("missing/a.json");
        let text = write(&path, b"x").unwrap_err().to_string();
        assert!(text.contains("missing/a.json"), "{text}");
        let taken = dir.path().join("taken");
        fs::create_dir_all(taken.join("inner")).unwrap();
        let text = write(&taken, b"x").unwrap_err().to_string();
        assert!(text.contains("cannot write") && text.contains("taken"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
