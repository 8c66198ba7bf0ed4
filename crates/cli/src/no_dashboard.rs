//! In place of the dashboard, in a build without the feature `tui`: `--tui` says how to get it.

use polygrad::train::TrainerConfig;

use crate::failure::{Failure, Result};

/// # Errors
/// Always.
pub(crate) fn show() -> Result<fn(TrainerConfig) -> TrainerConfig> {
    Err(Failure::new("`--tui` is not in this build").fix("build with `--features tui`"))
}
