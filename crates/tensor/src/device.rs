//! Devices.

use std::fmt;

use polygrad_core::{AnyBackend, AnyDevice, Backend, Capabilities, Registry, Result};

/// A device of backend `B`; by default one chosen at run time.
///
/// `Device::new("cpu")` opens a device through the registry; `Device::<Cpu>::default()` is chosen at compile time.
pub struct Device<B: Backend = AnyBackend>(B::Device);

impl Device {
    /// Opens the device that a string names, such as `cpu`, `cpu:threads=2` or `auto`.
    ///
    /// # Errors
    /// When the backend is unknown or absent (the error lists the available ones), or the device cannot be opened.
    pub fn new(device: &str) -> Result<Self> {
        Registry::global().open(device).map(Self)
    }

    /// The name of the backend behind it.
    pub fn backend_name(&self) -> &'static str {
        self.0.backend().name()
    }

    /// The backend's own device, if it is one of `C`.
    pub fn downcast<C: Backend>(&self) -> Option<Device<C>> {
        self.0.downcast_ref::<C>().cloned().map(Device)
    }
}

impl<B: Backend> Device<B> {
    /// Wraps a backend's own device.
    pub fn from_inner(device: B::Device) -> Self {
        Self(device)
    }

    /// The backend's own device.
    pub fn inner(&self) -> &B::Device {
        &self.0
    }

    /// What the device offers.
    pub fn capabilities(&self) -> Capabilities {
        B::capabilities(&self.0)
    }

    /// Waits until all work given to it is done.
    ///
    /// # Errors
    /// When work given earlier failed.
    pub fn synchronize(&self) -> Result<()> {
        B::synchronize(&self.0).map_err(|e| e.with_op("synchronize").with_device(self))
    }

    /// This device with its backend erased; unchanged if it already is.
    pub fn into_any(self) -> Device {
        let any: &dyn std::any::Any = &self;
        match any.downcast_ref::<Device>() {
            Some(device) => device.clone(),
            None => Device(AnyDevice::new::<B>(self.0)),
        }
    }
}

impl<B: Backend<Device: Default>> Default for Device<B> {
    fn default() -> Self {
        Self(B::Device::default())
    }
}

impl<B: Backend> Clone for Device<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> PartialEq for Device<B> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<B: Backend> fmt::Display for Device<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<B: Backend> fmt::Debug for Device<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.0)
    }
}
