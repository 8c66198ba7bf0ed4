//! Items used by the code of `#[derive(Module)]`.

pub use polygrad_tensor::{Result, Tensor};

pub use crate::locate::locate;

/// Has a `forward` for every type, so that the call is ambiguous, and thus an error, if a type has none of its own.
pub trait ForwardIsMissing {
    /// Never called.
    fn forward(&self, _: WriteAMethodForward) {}
}

impl<T: ?Sized> ForwardIsMissing for T {}

/// A type without values.
#[derive(Debug)]
pub enum WriteAMethodForward {}
