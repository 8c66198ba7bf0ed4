//! How a case ends.

use polygrad_core::{Error, ErrorKind};

/// Why a case ended early.
#[derive(Debug)]
pub(super) enum CaseError {
    /// The driver is wrong.
    Wrong(String),
    /// The driver does not offer it: the name of what it lacks.
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

/// What is wrong, as the end of a case.
pub(super) fn wrong<T>(what: impl Into<String>) -> CaseResult<T> {
    Err(CaseError::Wrong(what.into()))
}
