//! Replaces the dashboard in a build without the feature `tui`: `--tui` gives an error that says how to get it.

use polygrad::train::Callback;

use crate::failure::{Failure, Result};

/// # Errors
/// Always.
pub(crate) fn callback() -> Result<Box<dyn Callback>> {
    Err(Failure::new("`--tui` is not in this build").fix("build with `--features tui`"))
}
