//! A device whose backend is erased.

use std::any::Any;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use super::instance;
use crate::{Backend, DynBackend};

/// A device of any backend.
#[derive(Clone)]
pub struct AnyDevice {
    backend: &'static dyn DynBackend,
    device: Arc<dyn DynDevice>,
}

impl AnyDevice {
    /// Erases the backend of a device.
    pub fn new<B: Backend>(device: B::Device) -> Self {
        Self {
            backend: instance::<B>(),
            device: Arc::new(device),
        }
    }

    /// A device of a hand-written [`DynBackend`].
    pub fn from_parts(backend: &'static dyn DynBackend, device: Arc<dyn DynDevice>) -> Self {
        Self { backend, device }
    }

    /// Its backend.
    pub fn backend(&self) -> &'static dyn DynBackend {
        self.backend
    }

    /// The wrapped device.
    pub fn inner(&self) -> &dyn DynDevice {
        &*self.device
    }

    /// The device itself, if it is one of `B`.
    pub fn downcast_ref<B: Backend>(&self) -> Option<&B::Device> {
        self.device.as_any().downcast_ref()
    }
}

impl PartialEq for AnyDevice {
    fn eq(&self, other: &Self) -> bool {
        self.backend.id() == other.backend.id() && self.device.same(other.device.as_any())
    }
}

impl Display for AnyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&*self.device, f)
    }
}

impl Debug for AnyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyDevice({self})")
    }
}

/// A device of any backend as an object; implemented by a blanket impl.
pub trait DynDevice: Any + Debug + Display + Send + Sync {
    /// For downcasts.
    fn as_any(&self) -> &dyn Any;

    /// Whether the other is the same device.
    fn same(&self, other: &dyn Any) -> bool;
}

impl<D: PartialEq + Debug + Display + Send + Sync + 'static> DynDevice for D {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<D>() == Some(self)
    }
}
