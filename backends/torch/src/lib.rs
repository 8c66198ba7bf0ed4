//! LibTorch, the engine of PyTorch, as a backend of Polygrad, through [`tch`].
//!
//! Tensors are LibTorch's own, and ops run its kernels, the fused ones if they compute the same. Its autograd is not
//! used: to LibTorch, no tensor here requires a gradient, and gradients are Polygrad's. Tensors are exchanged without a
//! copy:
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
//! tch 0.26 requires LibTorch 2.13.0, which must be present when this crate is built (`LIBTORCH`, or
//! `LIBTORCH_USE_PYTORCH=1`), and be found by the loader when a program starts (`LD_LIBRARY_PATH`).

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
