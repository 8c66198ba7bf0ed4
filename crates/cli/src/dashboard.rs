//! `--tui`: how training goes, on the whole of the terminal.

use polygrad::train::{Dashboard, TrainerConfig};

use crate::failure::Result;
use crate::progress::say;

/// Whether this build has it.
///
/// # Errors
/// Never.
#[expect(clippy::unnecessary_wraps, reason = "a build without the feature has an error")]
pub(crate) fn must_be_there() -> Result<()> {
    Ok(())
}

/// Has training shown so.
pub(crate) fn show(options: TrainerConfig) -> TrainerConfig {
    options.callback(Dashboard::printing(say))
}
