//! Files that are either whole or not there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use polygrad_tensor::{Error, Result};

/// Replaces the content of `path` by what `write` writes, all or nothing: into a temporary file in the same folder, which is synced
/// and renamed over the old one. A kill at any moment leaves the old or the new content, and at worst a stray temporary file.
///
/// # Errors
/// Whatever the file system says, naming `path`; the old file is then untouched.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    replace_on(&RealDisk, path, write)
}

/// What is asked of a file system; tests have one that fails.
trait Disk {
    type File: Write;

    fn create(&self, path: &Path) -> io::Result<Self::File>;
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

fn replace_on<D: Disk>(disk: &D, path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let temporary = temporary(path);
    let outcome = (|| {
        let mut buffered = BufWriter::with_capacity(1 << 20, disk.create(&temporary)?);
        write(&mut buffered)?;
        let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        disk.sync(&file)?;
        drop(file);
        disk.rename(&temporary, path)
    })();
    if let Err(error) = outcome {
        // If even this fails, there is nobody left to tell, and what is left over is a temporary file.
        let _ = fs::remove_file(&temporary);
        return Err(Error::io("write", path, error));
    }
    // A rename is on the disk only once its folder is.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    disk.sync_folder(folder).map_err(|e| Error::io("write", path, e))
}

/// A name beside `path` that no other writer uses.
fn temporary(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(
        ".tmp-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    path.with_file_name(name)
}

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
            let outcome = replace_on(&disk, &path, |w| w.write_all(&new));
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
}
