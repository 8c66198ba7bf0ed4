//! Files that are either whole or not there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use polygrad_tensor::{Error, Result};

/// Replaces the content of `path` by what `write` writes, all or nothing: a kill at any moment leaves the old or the new content, and at worst
/// a stray temporary file.
///
/// # Errors
/// Whatever the file system says, naming `path`; the old file is then untouched.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    replace_on(RealDisk, path, write).map_err(|e| Error::io("write", path, e))
}

fn replace_on<D: Disk>(disk: D, path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut new = Replacement::create(disk, path)?;
    write(&mut new.file)?;
    new.commit()
}

/// A file under a temporary name in its final folder. [`commit`](AtomicFile::commit) syncs it and renames it over the old one; dropping it
/// instead removes it. A kill leaves the old file or the new one, and at worst a stray temporary one.
#[derive(Debug)]
pub struct AtomicFile(Replacement<RealDisk>);

impl AtomicFile {
    /// Opens a temporary file beside `path`, with a buffer.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        Replacement::create(RealDisk, path).map(Self)
    }

    /// Makes the bytes written so far the content of the file.
    ///
    /// # Errors
    /// Whatever the file system says; the old file is then untouched.
    pub fn commit(self) -> io::Result<()> {
        self.0.commit()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.file.flush()
    }
}

/// What is asked of a file system; tests have one that fails.
trait Disk {
    type File: Write;

    fn create(&self, path: &Path) -> io::Result<Self::File>;
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// An [`AtomicFile`] on any disk.
#[derive(Debug)]
struct Replacement<D: Disk> {
    disk: D,
    file: BufWriter<D::File>,
    // Behind the file, which is to be closed before it goes.
    temporary: Temporary,
    path: PathBuf,
}

impl<D: Disk> Replacement<D> {
    fn create(disk: D, path: &Path) -> io::Result<Self> {
        let path = &target(path)?;
        let temporary = Temporary::beside(path);
        let file = disk.create(&temporary.0)?;
        Ok(Self {
            disk,
            file: BufWriter::with_capacity(1 << 20, file),
            temporary,
            path: path.to_owned(),
        })
    }

    fn commit(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.disk.sync(&file)?;
        drop(file);
        self.disk.rename(&self.temporary.0, &self.path)?;
        // A rename is on the disk only once its folder is.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        self.disk.sync_folder(folder.unwrap_or(Path::new(".")))
    }
}

/// The file that a path means: what a link leads to. A device or a pipe would be lost to a rename, not written to.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a device or a pipe, and no file that can be replaced; give the path of a file",
        )),
        Ok(_) if fs::symlink_metadata(path)?.is_symlink() => fs::canonicalize(path),
        _ => Ok(path.to_owned()),
    }
}

/// A name beside a path that no other writer uses; what lies there goes with it.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(
            ".tmp-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        Self(path.with_file_name(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing. If it fails before, there is nobody left to tell, and what is left over is a temporary file.
        let _ = fs::remove_file(&self.0);
    }
}

#[derive(Debug)]
struct RealDisk;

impl Disk for RealDisk {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    #[cfg(unix)]
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Does what the real disk does until its time is up.
    struct FailingDisk {
        left: Rc<Cell<usize>>,
    }

    struct FailingFile {
        file: File,
        left: Rc<Cell<usize>>,
    }

    fn count(left: &Cell<usize>) -> io::Result<()> {
        match left.get().checked_sub(1) {
            Some(rest) => {
                left.set(rest);
                Ok(())
            }
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    impl Write for FailingFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            count(&self.left)?;
            self.file.write(&bytes[..bytes.len().min(100_000)])
        }

        fn flush(&mut self) -> io::Result<()> {
            self.file.flush()
        }
    }

    impl Disk for FailingDisk {
        type File = FailingFile;

        fn create(&self, path: &Path) -> io::Result<FailingFile> {
            count(&self.left)?;
            Ok(FailingFile {
                file: RealDisk.create(path)?,
                left: Rc::clone(&self.left),
            })
        }

        fn sync(&self, file: &FailingFile) -> io::Result<()> {
            count(&self.left)?;
            RealDisk.sync(&file.file)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            count(&self.left)?;
            RealDisk.rename(from, to)
        }

        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            count(&self.left)?;
            RealDisk.sync_folder(folder)
        }
    }

    #[test]
    fn a_failure_at_any_step_leaves_a_whole_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let (old, new) = (vec![1u8; 300_000], vec![2u8; 450_000]);
        let mut steps = 0;
        loop {
            fs::write(&path, &old).unwrap();
            let disk = FailingDisk {
                left: Rc::new(Cell::new(steps)),
            };
            let outcome = replace_on(disk, &path, |w| w.write_all(&new)).map_err(|e| Error::io("write", &path, e));
            let found = fs::read(&path).unwrap();
            assert!(found == old || found == new, "step {steps} left {} bytes", found.len());
            assert_eq!(
                fs::read_dir(folder.path()).unwrap().count(),
                1,
                "step {steps} left a temporary file"
            );
            match outcome {
                Ok(()) => {
                    assert_eq!(found, new);
                    break;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("model.safetensors") && text.contains("free some space"),
                        "{text}"
                    );
                }
            }
            steps += 1;
        }
        // Create, five writes, sync, rename, sync of the folder.
        assert_eq!(steps, 9);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let text = replace_file(&folder.path().join("missing/a"), |_| Ok(()))
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("missing/a") && text.contains("check that the path exists"),
            "{text}"
        );
    }

    #[test]
    fn an_abandoned_file_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half of the ne").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_to_their_files_and_sockets_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, socket) = (
            folder.path().join("file"),
            folder.path().join("link"),
            folder.path().join("socket"),
        );
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace_file(&link, |to| to.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(link.is_symlink());
        // A socket is no file either, and needs no privileges.
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = replace_file(&socket, |to| to.write_all(b"new")).unwrap_err();
        assert!(error.to_string().contains("is a device or a pipe"), "{error}");
        assert!(!socket.is_file());
    }
}
