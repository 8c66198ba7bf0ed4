//! `--tui`: how training goes, on the whole of the terminal.

use polygrad::train::{Dashboard, TrainerConfig};

use crate::failure::Result;
use crate::progress::say;

/// What has training shown so.
///
/// # Errors
/// Never.
#[expect(clippy::unnecessary_wraps, reason = "a build without the feature has an error")]
pub(crate) fn show() -> Result<fn(TrainerConfig) -> TrainerConfig> {
    Ok(|options| options.callback(Dashboard::printing(say)))
}
