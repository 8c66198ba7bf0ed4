//! Why a request is not answered.

use std::fmt;
use std::time::Duration;

use polygrad_core::{Error, ErrorKind};

/// Why a request is not answered: a reason for both protocols, and a message for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub reason: Reason,
    /// What failed, where, and what helps.
    pub message: String,
    /// The kind of the error behind it; `None` if there is none.
    pub kind: Option<ErrorKind>,
}

/// Kinds of failures, each with its status in HTTP and in gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request is invalid: 400, `INVALID_ARGUMENT`.
    Invalid,
    /// No such model, version or page: 404, `NOT_FOUND`.
    NotFound,
    /// A limit is exceeded: 413, `RESOURCE_EXHAUSTED`.
    TooLarge,
    /// The client is not authenticated: 401, `UNAUTHENTICATED`.
    Unauthenticated,
    /// Nobody is allowed to do this: 403, `PERMISSION_DENIED`.
    Forbidden,
    /// Too many requests wait; retry after this time: 503 with `Retry-After`, `RESOURCE_EXHAUSTED`.
    Busy(Duration),
    /// The model is not ready: 503, `UNAVAILABLE`.
    Unavailable,
    /// The deadline has passed, or the request waited for too long, and nothing was computed: 504, `DEADLINE_EXCEEDED`.
    Late,
    /// Not supported: 501, `UNIMPLEMENTED`.
    Unsupported,
    /// A fault of the server: 500, `INTERNAL`.
    Internal,
}

impl Failure {
    /// A failure with this reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            kind: None,
        }
    }

    /// A failure for an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, message)
    }

    /// The failure when a model rejects inputs that fit its signature: wrong values are the client's fault, anything
    /// else the server's.
    pub(crate) fn of_run(error: &Error) -> Self {
        let reason = match error.kind() {
            ErrorKind::Shape | ErrorKind::DType | ErrorKind::OutOfRange | ErrorKind::InvalidArgument => Reason::Invalid,
            _ => Reason::Internal,
        };
        Self {
            kind: Some(error.kind()),
            ..Self::new(reason, error.to_string())
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
