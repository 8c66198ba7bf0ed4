//! LibTorch, the engine of PyTorch, as a backend of Polygrad, through [`tch`].
//!
//! Tensors are LibTorch's own, ops run its kernels, and its fused ones where they mean the same. Its autograd
//! is not used: no tensor here requires a gradient to LibTorch, and gradients are Polygrad's. Tensors go in
//! and out without a copy:
//!
//! ```
//! use polygrad_tensor::{Device, Result, Tensor};
//! use polygrad_torch::{Torch, TorchTensor, tch};
//!
//! # fn main() -> Result<()> {
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3], &Device::<Torch>::default())?;
//! let angles = x.inner().to_tch().deg2rad();
//! let y = Tensor::<Torch>::from_inner(TorchTensor::try_from(angles)?).sin()?;
//! assert_eq!(y.dims(), [3]);
//! # Ok(())
//! # }
//! ```
//!
//! tch 0.26 is made for LibTorch 2.13.0, which must be there when this crate is built (`LIBTORCH`, or
//! `LIBTORCH_USE_PYTORCH=1`) and where the loader finds it when a program starts (`LD_LIBRARY_PATH`).

mod backend;
mod device;
mod elementwise;
mod entropy;
mod error;
mod ffi;
mod fused;
#[cfg(feature = "gloo")]
pub mod gloo;
mod index;
mod memory;
mod movement;
mod norm;
mod optim;
mod reduce;
mod tensor;
mod window;

pub use backend::Torch;
pub use device::{TorchDevice, entry};
pub use tch;
pub use tensor::TorchTensor;
