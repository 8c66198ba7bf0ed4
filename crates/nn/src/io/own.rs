//! Files that are written in place.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

/// Opens a file for reading and writing, positioned at its start or `at_end`, and creates it if it does not exist.
/// Writes go to this file and to no other, even if someone else prepared the folder.
///
/// # Errors
/// When `path` is a link, a file with a second hard link, or not a file; errors of the file system.
pub fn open_own(path: &Path, at_end: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(!at_end).append(at_end);
    loop {
        // `create_new` follows no link, not even a dangling one.
        match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        match fs::symlink_metadata(path) {
            Ok(found) if !is_own(&found) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is a link, has a second name, or is no file, so what is written there would land elsewhere",
                ));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        match options.open(path) {
            // Another file may have taken the path by now.
            Ok(file) if lies_at(&file, path)? => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether `file` is the file at `path` itself; false if `path` is a link to it.
///
/// # Errors
/// Errors of the file system, except that the path does not exist.
pub fn lies_at(file: &File, path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(there) => Ok(there.is_file() && identity(&file.metadata()?) == identity(&there)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn is_own(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    found.is_file() && found.nlink() == 1
}

#[cfg(not(unix))]
fn is_own(found: &Metadata) -> bool {
    found.is_file()
}

#[cfg(unix)]
fn identity(about: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;

    (about.dev(), about.ino())
}

/// The standard library cannot compare file identities on this platform, so any existing file is accepted.
#[cfg(not(unix))]
fn identity(about: &Metadata) -> bool {
    about.is_file()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_lands_nowhere_else() {
        use std::io::Write;
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "precious").unwrap();
        symlink(at("victim"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::hard_link(at("victim"), at("second")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for at_end in [false, true] {
            for name in ["link", "dangling", "second", "folder"] {
                let error = open_own(&at(name), at_end).unwrap_err().to_string();
                assert!(error.contains("would land elsewhere"), "{name}: {error}");
            }
            let mut file = open_own(&at("own"), at_end).unwrap();
            file.write_all(b"ab").unwrap();
            assert!(lies_at(&file, &at("own")).unwrap());
        }
        assert_eq!(fs::read(at("own")).unwrap(), b"abab");
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
        assert!(!at("nowhere").exists());
        let file = File::open(at("victim")).unwrap();
        assert!(!lies_at(&file, &at("link")).unwrap() && !lies_at(&file, &at("none")).unwrap());
    }
}
