//! `--tui`: the progress of training, in the whole terminal.

use polygrad::train::{Callback, Dashboard};

use crate::failure::Result;
use crate::progress::say;

/// The callback that shows training.
///
/// # Errors
/// Never.
#[expect(clippy::unnecessary_wraps, reason = "a build without the feature has an error")]
pub(crate) fn callback() -> Result<Box<dyn Callback>> {
    Ok(Box::new(Dashboard::printing(say)))
}
