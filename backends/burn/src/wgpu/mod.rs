//! Burn's wgpu runtime: tensors in the memory of a graphics adapter, computed by shaders that CubeCL compiles when
//! they are first used.

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
