//! Recorded calls.

use std::any::Any;
use std::fmt;

/// The result of [`ComputeBackend::record`](super::ComputeBackend::record), in the driver's own representation.
pub struct Recording(Box<dyn Any + Send + Sync>);

impl Recording {
    /// Wraps a driver's own representation.
    pub fn new(of_driver: impl Any + Send + Sync) -> Self {
        Self(Box::new(of_driver))
    }

    /// The driver's own representation, if it is a `T`.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}
