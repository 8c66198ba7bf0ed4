//! Device and dtype of new tensors.

use polygrad_core::{Backend, DType};

use crate::Device;

/// Where a tensor is made: `&device`, or `(&device, dtype)` for another dtype than the default.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say where to make a tensor of backend `{B}`",
    label = "takes `&device` or `(&device, dtype)`",
    note = "`Device::new` gives a `Result`: put `?` behind it"
)]
pub trait Place<B: Backend> {
    /// The device.
    fn device(&self) -> &Device<B>;

    /// The dtype; `None` for the default.
    fn dtype(&self) -> Option<DType>;
}

impl<B: Backend> Place<B> for &Device<B> {
    fn device(&self) -> &Device<B> {
        self
    }

    fn dtype(&self) -> Option<DType> {
        None
    }
}

impl<B: Backend> Place<B> for &&Device<B> {
    fn device(&self) -> &Device<B> {
        self
    }

    fn dtype(&self) -> Option<DType> {
        None
    }
}

impl<B: Backend> Place<B> for (&Device<B>, DType) {
    fn device(&self) -> &Device<B> {
        self.0
    }

    fn dtype(&self) -> Option<DType> {
        Some(self.1)
    }
}
