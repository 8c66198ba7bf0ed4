//! Values that are read from files, and read again when the files change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use polygrad_core::Result;

/// The shortest time between checks of the files.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Watched<T> {
    paths: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> Result<T>,
    value: ArcSwap<T>,
    seen: Mutex<Seen>,
    /// The value to fall back to if the files can no longer be read; `None` keeps the last value.
    without: Option<fn() -> T>,
}

/// The modification time and length of a file.
type State = Option<(SystemTime, u64)>;

/// When the files were last checked, and the state of each.
struct Seen {
    at: Instant,
    changed: Vec<State>,
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
            without: None,
        })
    }

    /// Sets the value to fall back to if the files can no longer be read.
    pub(crate) fn or_else(self, without: fn() -> T) -> Self {
        let without = Some(without);
        Self { without, ..self }
    }

    /// The value.
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
                    Err(error) => match self.without {
                        None => tracing::warn!("what was read before stays in use: {error}"),
                        Some(without) => {
                            tracing::error!("what was read before holds no more: {error}");
                            self.value.store(Arc::new(without()));
                        }
                    },
                }
            }
        }
        self.value.load()
    }
}

fn changed(paths: &[PathBuf]) -> Vec<State> {
    let state = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    paths.iter().map(state).collect()
}
