//! Why a request is not answered.

use std::fmt;
use std::time::Duration;

use polygrad_core::{Error, ErrorKind};

/// Why a request is not answered: one reason for both protocols, and a sentence for who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub reason: Reason,
    /// What, where, and what helps.
    pub message: String,
}

/// Kinds of failures, each with its status in HTTP and in gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request makes no sense: 400, `INVALID_ARGUMENT`.
    Invalid,
    /// No such model, version or page: 404, `NOT_FOUND`.
    NotFound,
    /// More than the limit: 413, `RESOURCE_EXHAUSTED`.
    TooLarge,
    /// It is not known who sent it: 401, `UNAUTHENTICATED`.
    Unauthenticated,
    /// Nobody may: 403, `PERMISSION_DENIED`.
    Forbidden,
    /// Too many requests wait; come again after so long: 503 with `Retry-After`, `RESOURCE_EXHAUSTED`.
    Busy(Duration),
    /// The model is not ready: 503, `UNAVAILABLE`.
    Unavailable,
    /// The deadline has passed, or it waited for too long, and nothing was computed: 504, `DEADLINE_EXCEEDED`.
    Late,
    /// Not offered here: 501, `UNIMPLEMENTED`.
    Unsupported,
    /// A fault of this side: 500, `INTERNAL`.
    Internal,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }

    /// A request that makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, message)
    }

    /// What a model made of inputs that fit its signature: wrong values are the sender's fault, the
    /// rest is this side's.
    pub(crate) fn of_run(error: &Error) -> Self {
        let reason = match error.kind() {
            ErrorKind::Shape | ErrorKind::DType | ErrorKind::OutOfRange | ErrorKind::InvalidArgument => Reason::Invalid,
            _ => Reason::Internal,
        };
        Self::new(reason, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
