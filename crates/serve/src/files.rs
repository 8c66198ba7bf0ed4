//! Models that are read from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polygrad_core::Result;

use crate::{Model, Source};

/// A file that was modified more recently than this may still be half written.
const SETTLED: Duration = Duration::from_millis(300);

/// A model that is read from files, and changes when they do.
pub struct Files<F> {
    paths: Vec<PathBuf>,
    read: F,
}

impl<F: Fn() -> Result<Arc<dyn Model>> + Send + Sync + 'static> Files<F> {
    /// A model that `read` builds from the files under `paths`. For a folder, the files directly in it are watched, not
    /// those in its subfolders.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>, read: F) -> Self {
        let paths = paths.into_iter().map(Into::into).collect();
        Self { paths, read }
    }
}

impl<F: Fn() -> Result<Arc<dyn Model>> + Send + Sync + 'static> Source for Files<F> {
    fn load(&self) -> Result<Arc<dyn Model>> {
        (self.read)()
    }

    /// When the newest file was modified. `None` while a file may still be being written, or if there are no files.
    fn changed(&self) -> Option<SystemTime> {
        let newest = self.paths.iter().filter_map(|path| newest(path)).max()?;
        // A modification time in the future is from a machine with another clock.
        let is_settled = newest.elapsed().is_ok_and(|age| age >= SETTLED) || newest > SystemTime::now();
        is_settled.then_some(newest)
    }
}

fn newest(path: &Path) -> Option<SystemTime> {
    if !path.is_dir() {
        return path.metadata().ok()?.modified().ok();
    }
    let entries = path.read_dir().ok()?.filter_map(|entry| entry.ok()?.metadata().ok());
    let files = entries.filter(std::fs::Metadata::is_file);
    files.filter_map(|file| file.modified().ok()).max()
}

#[cfg(test)]
mod tests {
    use polygrad_core::Error;

    use super::*;

    #[test]
    fn a_change_counts_once_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new([folder.path()], || Err(Error::invalid("nothing to read")));
        assert_eq!(files.changed(), None);
        let path = folder.path().join("model");
        let set = |age: u64| {
            let time = SystemTime::now() - Duration::from_secs(age);
            std::fs::write(&path, "x").unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
            time
        };
        for age in [100, 50] {
            let time = set(age);
            assert_eq!(files.changed(), Some(time));
        }
        std::fs::write(&path, "half of").unwrap();
        assert_eq!(files.changed(), None);
    }
}
