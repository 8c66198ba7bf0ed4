//! A tensor whose backend is erased.

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::{Arc, Weak};

use super::instance;
use crate::dyn_backend::foreign;
use crate::{Backend, DType, DynBackend, Result, Shape};

/// A tensor of any backend.
#[derive(Clone)]
pub struct AnyTensor {
    backend: &'static dyn DynBackend,
    erased: Arc<Erased<dyn Any + Send + Sync>>,
}

/// A tensor with its shape and dtype. These are read so often that asking the backend each time would cost more than
/// many ops do.
struct Erased<T: ?Sized> {
    shape: Shape,
    dtype: DType,
    /// An `Option` of the backend's own tensor, which is `None` while [`AnyTensor::take`] has taken it out.
    slot: T,
}

/// Identifies one tensor, without keeping its memory alive. A tensor that is changed in place while such an identity
/// exists becomes another tensor.
#[derive(Clone, Debug)]
pub struct Identity(Weak<Erased<dyn Any + Send + Sync>>);

impl Identity {
    /// Whether this is the identity of `tensor`.
    pub fn is_of(&self, tensor: &AnyTensor) -> bool {
        self.0.as_ptr().cast::<()>().addr() == tensor.address()
    }
}

impl AnyTensor {
    /// Erases the backend of a tensor.
    #[inline]
    pub fn new<B: Backend>(tensor: B::Tensor) -> Self {
        let (shape, dtype) = (B::shape(&tensor), B::dtype(&tensor));
        Self::from_parts(instance::<B>(), tensor, shape, dtype)
    }

    /// A tensor that a hand-written [`DynBackend`] recognises as its own by its type.
    #[inline]
    pub fn from_parts<T: Any + Send + Sync>(
        backend: &'static dyn DynBackend,
        tensor: T,
        shape: Shape,
        dtype: DType,
    ) -> Self {
        let slot = Some(tensor);
        Self {
            backend,
            erased: Arc::new(Erased { shape, dtype, slot }),
        }
    }

    /// Its backend.
    #[inline]
    pub fn backend(&self) -> &'static dyn DynBackend {
        self.backend
    }

    /// Identifies the tensor while it is alive: the same for all clones of a handle, and different
    /// from all other tensors.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.erased).cast::<()>().addr()
    }

    /// Whether both are handles of one tensor.
    pub fn is(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    /// The identity of this tensor, which differs from that of any other, even after the tensor is dropped.
    pub fn identity(&self) -> Identity {
        Identity(Arc::downgrade(&self.erased))
    }

    /// Its shape.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.erased.shape
    }

    /// Its dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.erased.dtype
    }

    /// The wrapped value, if it is a `T`.
    #[inline]
    pub fn inner<T: Any>(&self) -> Option<&T> {
        self.erased.slot.downcast_ref::<Option<T>>()?.as_ref()
    }

    /// The tensor itself, if it is one of `B`.
    #[inline]
    pub fn downcast_ref<B: Backend>(&self) -> Option<&B::Tensor> {
        self.inner()
    }

    fn slot<B: Backend>(&mut self) -> Option<&mut Option<B::Tensor>> {
        Arc::get_mut(&mut self.erased)?.slot.downcast_mut()
    }

    fn cloned<B: Backend>(&self) -> Result<B::Tensor> {
        let tensor = self.downcast_ref::<B>().cloned();
        tensor.ok_or_else(|| foreign::<B>(self.backend))
    }

    /// The tensor itself, for changes. Copied first if the handle is shared, which is cheap: backends share the memory.
    pub(crate) fn typed_mut<B: Backend>(&mut self) -> Result<&mut B::Tensor> {
        if self.slot::<B>().is_none() {
            *self = Self::new::<B>(self.cloned::<B>()?);
        }
        let backend = self.backend;
        self.slot::<B>()
            .and_then(Option::as_mut)
            .ok_or_else(|| foreign::<B>(backend))
    }

    /// Moves the tensor out, leaving a handle that holds none until a new one is put in its place.
    pub(crate) fn take<B: Backend>(&mut self) -> Result<B::Tensor> {
        match self.slot::<B>().and_then(Option::take) {
            Some(tensor) => Ok(tensor),
            None => self.cloned::<B>(),
        }
    }
}

impl Debug for AnyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.backend.name();
        write!(f, "AnyTensor({backend} {}{})", self.erased.dtype, self.erased.shape)
    }
}
