//! Python exceptions on their way through Rust.

use std::sync::{Arc, Mutex};

use polygrad::{Error, ErrorKind};
use pyo3::PyErr;

/// The first exception raised during a training, which its caller receives unchanged.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    /// Stores an exception, and returns an error that ends the training.
    pub(crate) fn of(&self, exception: PyErr) -> Error {
        if let Ok(mut first) = self.0.lock() {
            first.get_or_insert(exception);
        }
        Error::new(ErrorKind::Interrupted, "Python raised an exception")
    }

    /// The exception, if there was one.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().ok()?.take()
    }
}
