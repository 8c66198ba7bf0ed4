//! How commands end.

use std::process::ExitCode;

use crate::failure::Result;
use crate::progress;

/// The exit status of a command that Ctrl-C ended, as shells have it: 128 + SIGINT.
pub(crate) const EXIT_STATUS: u8 = 130;

/// How a command ended, when nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what it was asked to.
    Done,
    /// Ctrl-C ended it early.
    Interrupted,
}

/// Says why a command failed, and gives its exit status.
pub(crate) fn end(outcome: Result<Outcome>) -> ExitCode {
    match outcome.and_then(|outcome| progress::written().map(|()| outcome)) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(EXIT_STATUS),
        Err(failure) => {
            progress::complain(&failure);
            ExitCode::FAILURE
        }
    }
}
