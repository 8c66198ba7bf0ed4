//! Filters that are transformed once and used many times.

use std::sync::OnceLock;

use polygrad_core::Result;

use super::{direct, lanes, winograd};

/// A weight's filters in each form that a convolution has asked for; the form depends on the images.
#[derive(Default)]
pub struct Filters {
    pub direct: OnceLock<direct::Filters>,
    pub winograd: OnceLock<winograd::Filters>,
    pub lanes: OnceLock<lanes::Filters>,
}

/// Calls `run` with the kept filters if they fit, else with new ones, which are then kept.
///
/// # Errors
/// Those of `make` and `run`.
pub fn with<T>(
    kept: Option<&OnceLock<T>>,
    right: impl Fn(&T) -> bool,
    make: impl FnOnce() -> Result<T>,
    run: impl FnOnce(&T) -> Result<()>,
) -> Result<()> {
    if let Some(filters) = kept.and_then(OnceLock::get).filter(|filters| right(filters)) {
        return run(filters);
    }
    let made = make()?;
    let result = run(&made);
    if let Some(kept) = kept {
        // Filters for other groups may be there already; in that case those stay.
        let _ = kept.set(made);
    }
    result
}
