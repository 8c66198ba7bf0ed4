//! Burn's wgpu runtime: tensors in a graphics adapter's memory, computed by shaders that CubeCL compiles on first use.

mod backend;
mod compare;
mod device;
mod elementary;
mod elementwise;
mod host;
mod index;
mod kernel;
mod movement;
mod product;
mod reduce;
mod support;
mod tensor;
mod window;

pub use backend::BurnWgpu;
pub use device::BurnWgpuDevice;
pub(crate) use device::devices;
pub use tensor::BurnWgpuTensor;
