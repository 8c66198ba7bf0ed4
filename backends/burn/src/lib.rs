//! Burn's CPU engine, burn-flex, as a backend of Polygrad.
//!
//! Tensors are burn-flex's own, in its memory, and ops are its kernels; its autodiff has no part in it. Device strings are `burn` and `burn:cpu`.
//!
//! To call into Burn and come back, take the tensor out and put it in again; nothing is copied:
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
//! With feature `tensor`, the same conversions are there for `burn::Tensor`.

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
pub use burn_backend;
pub use burn_flex;
#[cfg(feature = "tensor")]
pub use burn_tensor;
pub use device::{BurnDevice, entry};
pub use tensor::BurnTensor;
