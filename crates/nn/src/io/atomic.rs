//! Files that are written completely or not at all.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use polygrad_tensor::{Error, Result};

use super::own::{lies_at, open_own};

/// Atomically replaces the content of `path` by what `write` writes: a kill at any moment leaves the old or the new
/// content, and at worst a stray temporary file, which the next process that writes to the folder removes.
///
/// If `path` is a link, the link itself is replaced and its target stays as it is, so that a folder prepared by someone
/// else cannot redirect a write out of it.
///
/// # Errors
/// Errors of the file system, naming `path`; the old file is then untouched.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    replace_on(RealDisk, path, write).map_err(|e| Error::io("write", path, e))
}

fn replace_on<D: Disk>(disk: D, path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut new = Replacement::create(disk, path)?;
    write(&mut new.file)?;
    new.commit()
}

/// A file under a temporary name in its final folder. [`commit`](AtomicFile::commit) syncs it and renames it over the
/// old one; dropping it without a commit removes it. Kills and links are handled as in [`replace_file`].
#[derive(Debug)]
pub struct AtomicFile(Replacement<RealDisk>);

impl AtomicFile {
    /// Opens a buffered temporary file beside `path`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Replacement::create(RealDisk, path).map(Self)
    }

    /// Makes the bytes written so far the content of the final file.
    ///
    /// # Errors
    /// Errors of the file system; the old file is then untouched.
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

/// The file system operations used here; tests replace them by failing ones.
trait Disk {
    type File: Write;

    /// Wraps the newly created file in the type that is written to.
    fn create(&self, made: File) -> io::Result<Self::File>;
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// An [`AtomicFile`] on any disk.
#[derive(Debug)]
struct Replacement<D: Disk> {
    disk: D,
    file: BufWriter<D::File>,
    // Declared after `file`, so that the file is closed before it is removed.
    temporary: Temporary,
    path: PathBuf,
}

impl<D: Disk> Replacement<D> {
    fn create(disk: D, path: &Path) -> io::Result<Self> {
        must_be_replaceable(path)?;
        let (temporary, file) = Temporary::beside(path)?;
        let file = disk.create(file)?;
        Ok(Self {
            disk,
            file: BufWriter::with_capacity(1 << 16, file),
            temporary,
            path: path.to_owned(),
        })
    }

    fn commit(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.disk.sync(&file)?;
        // The file stays open until it is renamed: its lock tells other processes that it is not a leftover.
        self.temporary.rename(&self.disk, &self.path)?;
        drop(file);
        // A rename is durable only after its folder is synced.
        self.disk.sync_folder(folder_of(&self.path))
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Rejects devices and pipes, which a rename would replace instead of writing to them, and links in `/dev`, which lead
/// to the process's open files.
fn must_be_replaceable(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path).ok();
    // If `path` is a link to a folder, the rename would replace the link.
    if found.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    match found.is_some_and(|found| !found.is_file()) || path.starts_with("/dev") && path.is_symlink() {
        true => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a device or a pipe, and no file that can be replaced; give the path of a file",
        )),
        false => Ok(()),
    }
}

/// Prefix of the names of all temporary files.
const PREFIX: &str = ".polygrad-tmp-";

/// This process's temporary files, and the folders already searched for leftovers of other processes.
static KNOWN: Mutex<Known> = Mutex::new(Known {
    files: BTreeSet::new(),
    swept: BTreeSet::new(),
    made: 0,
});

struct Known {
    files: BTreeSet<PathBuf>,
    swept: BTreeSet<PathBuf>,
    made: u64,
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files that this process has not finished writing. Later attempts to begin or finish a file block
/// forever, so call this only when the process is about to end.
pub fn abandon_files() {
    let known = known();
    for path in &known.files {
        // There is no one left to report an error to.
        let _ = fs::remove_file(path);
    }
    std::mem::forget(known);
}

/// A temporary file beside a path, used by this writer only; dropping this removes the file.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    /// Creates and locks a new one. The system releases the lock when the process ends, so that other processes
    /// recognise leftovers.
    fn beside(path: &Path) -> io::Result<(Self, File)> {
        let mut known = known();
        if known.swept.insert(folder_of(path).to_owned()) {
            sweep(folder_of(path));
        }
        loop {
            known.made += 1;
            let path = path.with_file_name(format!("{PREFIX}{}-{}", std::process::id(), known.made));
            let file = match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // On systems without locks nothing is ever swept. Elsewhere another process may have taken the file for a
            // leftover, and locked or removed it, before it was locked here; then try again.
            if !matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)) && lies_at(&file, &path)? {
                known.files.insert(path.clone());
                return Ok((Self(path), file));
            }
        }
    }

    fn rename(self, disk: &impl Disk, to: &Path) -> io::Result<()> {
        let mut known = known();
        disk.rename(&self.0, to)?;
        known.files.remove(&self.0);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut known = known();
        if known.files.remove(&self.0) {
            // An error has no one to go to, and at worst leaves a temporary file behind.
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Removes temporary files that killed processes left in a folder.
fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in ours.map(|entry| entry.path()) {
        // Errors are ignored: a file that stays only takes disk space.
        if let Ok(file) = open_own(&path, true)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(path);
        }
    }
}

#[derive(Debug)]
struct RealDisk;

impl Disk for RealDisk {
    type File = File;

    fn create(&self, made: File) -> io::Result<File> {
        Ok(made)
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

    /// Works like the real disk for a number of steps, then fails.
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

        fn create(&self, made: File) -> io::Result<FailingFile> {
            count(&self.left)?;
            Ok(FailingFile {
                file: made,
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
    fn links_are_replaced_and_sockets_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (leads_to, name) in [("file", "link"), ("nowhere", "dangling")] {
            std::os::unix::fs::symlink(at(leads_to), at(name)).unwrap();
            replace_file(&at(name), |to| to.write_all(b"new")).unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"new");
            assert!(!at(name).is_symlink());
        }
        fs::hard_link(at("file"), at("second")).unwrap();
        replace_file(&at("second"), |to| to.write_all(b"new")).unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
        assert!(!at("nowhere").exists());
        // A socket is not a file either, and needs no privileges to create.
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (leads_to, name) in [("folder", "to folder"), ("socket", "to socket")] {
            std::os::unix::fs::symlink(at(leads_to), at(name)).unwrap();
        }
        for (name, why) in [
            ("socket", "is a device or a pipe"),
            ("to socket", "is a device or a pipe"),
            ("/dev/stdout", "is a device or a pipe"),
            ("folder", "directory"),
            ("to folder", "directory"),
        ] {
            let error = replace_file(&at(name), |to| to.write_all(b"new")).unwrap_err();
            assert!(error.to_string().contains(why), "{name}: {error}");
        }
        assert!(at("to folder").is_symlink() && at("to socket").is_symlink());
    }

    #[cfg(unix)]
    #[test]
    fn what_was_left_behind_goes_and_what_is_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let left = at(".polygrad-tmp-4000000000-1");
        fs::write(&left, "half").unwrap();
        fs::write(at("victim"), "precious").unwrap();
        std::os::unix::fs::symlink(at("victim"), at(".polygrad-tmp-1-1")).unwrap();
        fs::write(at("a.tmp"), "of others").unwrap();
        let mut open = AtomicFile::create(&at("a")).unwrap();
        open.write_all(b"a").unwrap();
        assert!(!left.exists() && at("a.tmp").exists());
        // As another process would.
        sweep(folder.path());
        replace_file(&at("b"), |to| to.write_all(b"b")).unwrap();
        open.commit().unwrap();
        assert_eq!(
            (fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()),
            (b"a".to_vec(), b"b".to_vec())
        );
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
    }
}
