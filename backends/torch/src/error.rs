//! Errors of LibTorch in Polygrad's words.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polygrad_core::{DType, Error, ErrorKind, Result};
use tch::TchError;

/// An error that names the op, from what LibTorch says.
#[cold]
pub(crate) fn from_text(op: &'static str, text: &str) -> Error {
    // What follows is a list of C++ frames.
    let text = text.split("\nException raised from").next().unwrap_or(text).trim();
    let has = |pieces: &[&str]| pieces.iter().any(|piece| text.contains(piece));
    let error = if has(&[
        "allocate memory",
        "out of memory",
        "Storage size calculation overflowed",
    ]) {
        Error::new(ErrorKind::OutOfMemory, format!("LibTorch found no memory: {text}"))
    } else if has(&["CUDA error"]) {
        Error::new(ErrorKind::DeviceError, format!("the CUDA device failed: {text}"))
    } else {
        Error::unsupported(format!("LibTorch refuses it: {text}"))
    };
    error.with_op(op)
}

/// Results of tch as results of Polygrad.
pub(crate) trait Named<T> {
    /// With the name of the op that failed.
    fn named(self, op: &'static str) -> Result<T>;
}

impl<T> Named<T> for std::result::Result<T, TchError> {
    #[inline]
    fn named(self, op: &'static str) -> Result<T> {
        self.map_err(|error| match &error {
            TchError::Torch(text) => from_text(op, text),
            other => from_text(op, &other.to_string()),
        })
    }
}

/// An op that is not defined for a dtype.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}")).with_op(op)
}

/// An op that Polygrad learned after this backend was written.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("the torch backend does not know this op")
        .with_op(op)
        .with_hint("use a polygrad-torch of the same version as polygrad")
}

/// Calls what panics in tch when it fails. Ops that take a number are among it: tch frees the number before it looks at
/// the error, and the call that frees it finds the error there.
#[inline]
pub(crate) fn guarded<T>(op: &'static str, f: impl FnOnce() -> std::result::Result<T, TchError>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result.named(op),
        Err(panic) => Err(match panic.downcast_ref::<String>() {
            Some(text) => from_text(op, text),
            None => from_text(op, "tch panicked"),
        }),
    }
}
