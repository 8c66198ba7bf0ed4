//! Burn's engines as backends of Polygrad: [`Burn`] is its CPU engine, burn-flex, with device strings `burn` and
//! `burn:cpu`; with feature `wgpu`, `BurnWgpu` is its wgpu runtime (Vulkan, Metal, DirectX 12), with device strings
//! `burn:wgpu` and `burn:wgpu:N`.
//!
//! Tensors are the engine's own, in its memory, and ops are its kernels. Burn's autodiff is not used.
//!
//! To call Burn, take the tensor out and put the result in again; nothing is copied:
//!
//! ```
//! use burn_backend::ops::FloatTensorOps;
//! use polygrad_burn::burn_flex::{Flex, FlexTensor};
//! use polygrad_burn::{Burn, BurnTensor, burn_backend};
//! use polygrad_tensor::{Device, Tensor};
//!
//! # fn main() -> polygrad_core::Result<()> {
//! let x = Tensor::<Burn>::from_vec(vec![1f32, 4.0, 9.0], 3, &Device::default())?;
//! let roots = Flex::float_sqrt(FlexTensor::from(x.inner().clone()));
//! let roots = Tensor::<Burn>::from_inner(BurnTensor::try_from(roots)?);
//! assert_eq!(roots.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! With feature `tensor`, the same conversions exist for `burn::Tensor`.

mod entry;
mod flex;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use burn_backend;
pub use burn_flex;
#[cfg(feature = "tensor")]
pub use burn_tensor;
#[cfg(feature = "wgpu")]
pub use burn_wgpu;
pub use entry::entry;
pub use flex::{Burn, BurnDevice, BurnTensor};
#[cfg(feature = "wgpu")]
pub use wgpu::{BurnWgpu, BurnWgpuDevice, BurnWgpuTensor};
