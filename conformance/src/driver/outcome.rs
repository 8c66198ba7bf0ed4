//! How a case ends.

use polygrad_core::{Error, ErrorKind};

/// Why a case ended early.
#[derive(Debug)]
pub(super) enum CaseError {
    /// The driver is incorrect.
    Wrong(String),
    /// The driver does not support it: the name of what it lacks.
    Lacks(String),
}

impl From<Error> for CaseError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::Lacks(error.to_string()),
            _ => Self::Wrong(error.to_string()),
        }
    }
}

/// How a case ends.
pub(super) type CaseResult<T = ()> = Result<T, CaseError>;

/// Ends a case with an error.
pub(super) fn wrong<T>(what: impl Into<String>) -> CaseResult<T> {
    Err(CaseError::Wrong(what.into()))
}
