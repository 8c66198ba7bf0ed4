//! Files to read from.

use std::fs::{self, File, FileType, Metadata};
use std::path::Path;

use crate::{Error, ErrorKind, Result, printable};

/// Opens a file for reading, and returns it with its length in bytes. Anything without a length is refused: reading
/// from a named pipe may block forever, and reading from a device may never end.
///
/// # Errors
/// When there is no such file, it may not be read, or it is a folder, a pipe, a socket or a device;
/// the error names `path`.
pub fn open_file(path: impl AsRef<Path>) -> Result<(File, u64)> {
    let path = path.as_ref();
    let regular = |about: &Metadata| match about.is_file() {
        true => Ok(()),
        false => Err(irregular(path, about.file_type())),
    };
    // Checked before opening, since opening a pipe blocks until it has a writer; and after, since the file may have
    // been replaced in between.
    regular(&fs::metadata(path).map_err(|e| Error::io("read", path, e))?)?;
    let file = File::open(path).map_err(|e| Error::io("read", path, e))?;
    let about = file.metadata().map_err(|e| Error::io("read", path, e))?;
    regular(&about)?;
    Ok((file, about.len()))
}

fn irregular(path: &Path, found: FileType) -> Error {
    let message = format!(
        "cannot read {}: it is not a file, but {}",
        printable(&path.to_string_lossy()),
        kind(found)
    );
    Error::new(ErrorKind::Io, message)
        .with_hint("give a file; what a program writes to a pipe can be kept in one first")
}

#[cfg(unix)]
fn kind(found: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;

    match found {
        found if found.is_dir() => "a folder",
        found if found.is_fifo() => "a pipe",
        found if found.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn kind(found: FileType) -> &'static str {
    if found.is_dir() { "a folder" } else { "a device" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "four").unwrap();
        assert_eq!(open_file(&file).unwrap().1, 4);
        let refused = |path: &Path| open_file(path).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("not a file, but a folder"));
        assert!(refused(&folder.path().join("none")).contains("none: "));
        #[cfg(unix)]
        {
            let pipe = folder.path().join("pipe");
            assert!(
                std::process::Command::new("mkfifo")
                    .arg(&pipe)
                    .status()
                    .unwrap()
                    .success()
            );
            assert!(refused(&pipe).contains("pipe: it is not a file, but a pipe"));
            assert!(refused(Path::new("/dev/zero")).contains("a device"));
        }
    }
}
