//! Buffers.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use polygrad_tensor::{AnyBackend, Backend, Result, Tensor};

use super::{Item, Visit, Visitor};

/// A tensor that belongs to a module's state and is not trained, such as running statistics. Cloning gives a
/// second handle to it.
pub struct Buffer<B: Backend = AnyBackend>(Arc<Inner<B>>);

struct Inner<B: Backend> {
    value: RwLock<Tensor<B>>,
    is_weight: bool,
}

impl<B: Backend> Buffer<B> {
    /// A buffer with these values.
    pub fn new(value: &Tensor<B>) -> Self {
        Self::of(value, false)
    }

    /// A part of a weight that is not trained, which [`Trained`](crate::Trained) hides.
    pub(crate) fn weight(value: &Tensor<B>) -> Self {
        Self::of(value, true)
    }

    fn of(value: &Tensor<B>, is_weight: bool) -> Self {
        Self(Arc::new(Inner {
            value: RwLock::new(value.detach()),
            is_weight,
        }))
    }

    pub(super) fn is_weight(&self) -> bool {
        self.0.is_weight
    }

    /// The values: a constant in the gradient graph.
    pub fn tensor(&self) -> Tensor<B> {
        self.read().clone()
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Tensor<B>> {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets new values.
    ///
    /// # Errors
    /// When shape or dtype differ; the buffer then keeps its values.
    pub fn set(&self, value: &Tensor<B>) -> Result<()> {
        let mut tensor = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        tensor.update(|inner| {
            *inner = value.inner().clone();
            Ok(())
        })
    }

    /// Sets values of any shape and dtype, on any device.
    pub(crate) fn replace(&self, value: &Tensor<B>) {
        *self.0.value.write().unwrap_or_else(PoisonError::into_inner) = value.detach();
    }
}

impl<B: Backend> Clone for Buffer<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Backend> Visit<B> for Buffer<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Buffer(self));
    }
}

impl<B: Backend> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = self.tensor();
        write!(f, "Buffer({}{})", tensor.dtype(), tensor.shape())
    }
}
