//! Values that are read from files, and read again when these change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use polygrad_core::Result;

/// How often the files are looked at, at most.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Watched<T> {
    paths: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> Result<T>,
    value: ArcSwap<T>,
    seen: Mutex<Seen>,
}

/// When the files were looked at last, and when each of them had changed.
struct Seen {
    at: Instant,
    changed: Vec<Option<SystemTime>>,
}

impl<T> Watched<T> {
    pub(crate) fn new(paths: Vec<PathBuf>, read: fn(&[PathBuf]) -> Result<T>) -> Result<Self> {
        let changed = changed(&paths);
        let value = ArcSwap::from_pointee(read(&paths)?);
        let seen = Mutex::new(Seen {
            at: Instant::now(),
            changed,
        });
        Ok(Self {
            paths,
            read,
            value,
            seen,
        })
    }

    /// The value. Files that cannot be read leave it as it was.
    pub(crate) fn get(&self) -> arc_swap::Guard<Arc<T>> {
        if let Ok(mut seen) = self.seen.try_lock()
            && seen.at.elapsed() >= INTERVAL
        {
            seen.at = Instant::now();
            let changed = changed(&self.paths);
            if changed != seen.changed {
                seen.changed = changed;
                match (self.read)(&self.paths) {
                    Ok(value) => self.value.store(Arc::new(value)),
                    Err(error) => tracing::warn!("what was read before stays in use: {error}"),
                }
            }
        }
        self.value.load()
    }
}

fn changed(paths: &[PathBuf]) -> Vec<Option<SystemTime>> {
    let changed = paths.iter().map(|path| std::fs::metadata(path).ok()?.modified().ok());
    changed.collect()
}
