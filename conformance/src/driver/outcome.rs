//! How a case ends.

use polygrad_core::{Error, ErrorKind};

/// Why a case ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The driver is wrong.
    Wrong(String),
    /// The driver does not offer it: the name of what it lacks.
    Lacks(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::Lacks(error.to_string()),
            _ => Self::Wrong(error.to_string()),
        }
    }
}

/// How a case ends.
pub(super) type Done<T = ()> = Result<T, Stop>;

/// What is wrong, as the end of a case.
pub(super) fn wrong<T>(what: impl Into<String>) -> Done<T> {
    Err(Stop::Wrong(what.into()))
}
