//! Errors that wgpu reports asynchronously become the error of the next call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::{Error, ErrorKind, Result};
use wgpu::{Device, DeviceLostReason};

/// An error that has not been returned yet.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    message: String,
    /// The device is lost; every call returns this error.
    lost: bool,
}

pub(crate) type Failures = Arc<Mutex<Option<Failure>>>;

/// Locks a mutex even if it was poisoned by a panic elsewhere.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the errors that the device reports.
pub(crate) fn watch(device: &Device, failures: &Failures) {
    let note = Arc::clone(failures);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let kind = match error {
            wgpu::Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            _ => ErrorKind::DeviceError,
        };
        put(&note, kind, error.to_string(), false);
    }));
    let note = Arc::clone(failures);
    device.set_device_lost_callback(move |reason, message| {
        if reason != DeviceLostReason::Destroyed {
            put(
                &note,
                ErrorKind::DeviceError,
                format!("the device is lost: {message}"),
                true,
            );
        }
    });
}

/// The first error counts, unless a later one is a lost device.
fn put(failures: &Failures, kind: ErrorKind, message: String, lost: bool) {
    let mut slot = lock(failures);
    if slot.is_none() || (lost && !slot.as_ref().is_some_and(|failure| failure.lost)) {
        *slot = Some(Failure { kind, message, lost });
    }
}

/// Returns the recorded error: once, or on every call if the device is lost.
pub(crate) fn check(failures: &Failures) -> Result<()> {
    let mut slot = lock(failures);
    let Some(failure) = slot.clone() else { return Ok(()) };
    if !failure.lost {
        *slot = None;
    }
    Err(Error::new(failure.kind, failure.message))
}

/// Converts the error that an error scope caught.
pub(crate) fn caught(error: &wgpu::Error, doing: &str) -> Error {
    let kind = match error {
        wgpu::Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        _ => ErrorKind::DeviceError,
    };
    Error::new(kind, format!("{doing}: {error}"))
}
