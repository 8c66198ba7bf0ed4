//! Conversion of LibTorch's errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polygrad_core::{DType, Error, ErrorKind, Result};
use tch::TchError;

/// An error with the name of the op, from LibTorch's text.
#[cold]
pub(crate) fn from_text(op: &'static str, text: &str) -> Error {
    // The rest is a list of C++ frames.
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

/// Converts results of tch.
pub(crate) trait Named<T> {
    /// Adds the name of the op that failed.
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

/// The error for an op that is not defined for a dtype.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}")).with_op(op)
}

/// The error for an op that is newer than this backend.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("the torch backend does not know this op")
        .with_op(op)
        .with_hint("use a polygrad-torch of the same version as polygrad")
}

/// Calls a function of tch that panics if it fails. Ops with a scalar are among those: tch frees the scalar before it
/// checks for the error, and the freeing call then finds that error.
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
