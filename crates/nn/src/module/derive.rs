//! What the code of `#[derive(Module)]` names.

pub use polygrad_tensor::{Result, Tensor};

pub use crate::locate::locate;

/// Has a `forward` for every type, so that it is ambiguous where a type has none of its own.
pub trait ForwardIsMissing {
    /// Never called.
    fn forward(&self, _: WriteAMethodForward) {}
}

impl<T: ?Sized> ForwardIsMissing for T {}

/// What nothing is.
#[derive(Debug)]
pub enum WriteAMethodForward {}
