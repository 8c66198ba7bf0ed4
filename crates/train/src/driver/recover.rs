//! Going on without a rank that is lost.

use std::sync::Arc;

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, ErrorKind, Result};

/// What becomes of those who are left.
pub(super) enum Left {
    /// They go on.
    GoOn,
    /// They end: the engine does not let them go on, or nobody is lost.
    End,
    /// They end: what the lost rank alone had is needed, and there is no checkpoint.
    Miss(&'static str),
}

/// After an error of the communication: tries to go on until those who are left do, since another one may be lost
/// meanwhile.
///
/// # Errors
/// The error itself, where they cannot; what goes wrong beside.
pub(super) fn recovered(mut error: Error, mut attempt: impl FnMut() -> Result<Left>) -> Result<()> {
    loop {
        if error.kind() != ErrorKind::Communication {
            return Err(error);
        }
        match attempt() {
            Ok(Left::GoOn) => return Ok(()),
            Ok(Left::End) => return Err(error),
            Ok(Left::Miss(what)) => {
                let message = format!("{}, and {what} is gone", error.message());
                return Err(Error::communication(message).with_source(error).with_hint(
                    "with a run folder (TrainerConfig::run, --out) those who are left go on from its last checkpoint",
                ));
            }
            Err(next) => error = next,
        }
    }
}

/// The group of those who are left, if somebody is lost and the engine lets the others go on.
pub(super) fn left(before: &dyn Communicator) -> Result<Option<Arc<dyn Communicator>>> {
    match before.shrink() {
        Ok(group) => Ok(Some(group).filter(|group| group.size() < before.size())),
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
        Err(e) => Err(e),
    }
}
