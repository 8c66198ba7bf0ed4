//! Burn's CPU engine.

mod activation;
mod backend;
mod compare;
mod device;
mod elementwise;
mod host;
mod index;
mod integer;
#[cfg(feature = "tensor")]
mod interop;
mod movement;
mod optim;
mod product;
mod reduce;
mod support;
mod tensor;
mod total;
mod window;

pub use backend::Burn;
pub use device::BurnDevice;
pub use tensor::BurnTensor;
