//! How commands end.

use std::process::ExitCode;

use polygrad::train::stop_status;

use crate::failure::Result;
use crate::progress;

/// How a command ended, when nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It completed.
    Done,
    /// Ctrl-C, SIGTERM or SIGHUP ended it early.
    Interrupted,
}

/// Prints why a command failed, and returns its exit status.
pub fn end(outcome: Result<Outcome>) -> ExitCode {
    let outcome = match outcome {
        // A closed terminal accepts no more output.
        Ok(Outcome::Interrupted) => return ExitCode::from(stop_status()),
        Ok(Outcome::Done) => progress::written(),
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            progress::complain(&failure);
            ExitCode::FAILURE
        }
    }
}
