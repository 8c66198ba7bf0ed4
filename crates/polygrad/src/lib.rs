//! A deep-learning library in which a model is written once, and then trained, saved and served on any backend: our own
//! CPU and GPU kernels, or an engine that others wrote (LibTorch, Candle, Burn, Luminal).
//!
//! # Use it
//!
//! [`prelude`] has what nearly every program needs. Layers and models are in [`nn`], losses in [`nn::loss`], optimizers
//! and schedules in [`optim`]; the ops are the methods of [`Tensor`], under PyTorch's names. A model of your own is a
//! struct that derives [`Module`](nn::Module).
//!
#![cfg_attr(feature = "cpu", doc = "```")]
#![cfg_attr(not(feature = "cpu"), doc = "```ignore")]
//! use polygrad::nn::{Linear, loss::mse_loss};
//! use polygrad::{optim::Adam, prelude::*};
//!
//! #[derive(Module)]
//! struct Net {
//!     hidden: Linear,
//!     output: Linear,
//! }
//!
//! impl Net {
//!     fn new(device: &Device) -> Result<Self> {
//!         Ok(Self { hidden: Linear::new(2, 16, device)?, output: Linear::new(16, 1, device)? })
//!     }
//!
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.output.forward(&self.hidden.forward(x)?.relu()?)
//!     }
//! }
//!
//! fn main() -> Result<()> {
//!     let device = Device::new("cpu")?;
//!     let x = Tensor::new([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &device)?;
//!     let y = Tensor::new([[0.0], [1.0], [1.0], [0.0]], &device)?;
//!     let net = Net::new(&device)?;
//!     let mut optimizer = Adam::new(net.parameters(), 0.05)?;
//!     for _ in 0..200 {
//!         optimizer.backward_step(mse_loss(&net.forward(&x)?, &y)?)?;
//!     }
//!     println!("{}", net.forward(&x)?);
//!     net.save("xor.safetensors")?;
//! #   std::fs::remove_file("xor.safetensors").ok();
//!     Ok(())
//! }
//! ```
//!
//! # Extend it
//!
//! - An op with a gradient of its own: [`autograd::CustomOp`], held to numerical differences by
//!   [`autograd::gradcheck`].
//! - An optimizer: [`optim::UpdateRule`], three methods. A learning rate: [`optim::Schedule`].
//! - Models for any backend, chosen when the program is compiled: a type parameter,
//!   `struct Net<B: Backend> { hidden: Linear<B> }`, and [`Device::<Cpu>::default()`](Device::default).
//! - A backend: [`backend::Backend`], outside of this crate and without a change to it.
//!
//! # Embed it
//!
//! - A service: threads share `&model`; [`no_grad`] is per thread; [`nn::Served`] replaces a model while it answers.
//! - A small step many times: [`nn::CapturedStep`] records a training step, [`nn::Compile`] a forward pass, and both
//!   replay it.
//! - A small program, without [`data`] and [`train`]: `default-features = false, features = ["cpu"]`; it also runs in
//!   WebAssembly.
//! - An engine that is there already: the features `torch`, `candle`, `burn` and `luminal`, and
//!   [`tensor::IntoBackend`] to move a model.

mod backends;
#[cfg(all(doctest, feature = "cpu", feature = "train"))]
mod pages;

#[cfg(feature = "burn")]
pub use polygrad_burn as burn;
#[cfg(feature = "candle")]
pub use polygrad_candle as candle;
#[cfg(feature = "compute")]
pub use polygrad_compute as compute;
#[cfg(feature = "cpu")]
pub use polygrad_cpu as cpu;
#[cfg(feature = "cuda")]
pub use polygrad_cuda as cuda;
#[cfg(feature = "formats")]
pub use polygrad_formats as formats;
#[cfg(feature = "luminal")]
pub use polygrad_luminal as luminal;
#[cfg(feature = "onnx")]
pub use polygrad_onnx as onnx;
#[cfg(feature = "rl")]
pub use polygrad_rl as rl;
#[cfg(feature = "serve")]
pub use polygrad_serve as serve;
#[cfg(feature = "text")]
pub use polygrad_text as text;
#[cfg(feature = "torch")]
pub use polygrad_torch as torch;
#[cfg(feature = "wgpu")]
pub use polygrad_wgpu as wgpu;

/// Datasets, transforms and loaders.
#[cfg(feature = "data")]
#[doc(inline)]
pub use polygrad_data as data;
/// Everything about tensors, including types of arguments, wrappers of other crates' tensors, and rarely used items.
#[doc(inline)]
pub use polygrad_tensor as tensor;
pub use polygrad_tensor::{
    AnyBackend, Backend, DType, Device, Error, ErrorKind, Gradients, Index, Result, Shape, Tensor, manual_seed, no_grad,
};
/// Training loops, metrics and run folders.
#[cfg(feature = "train")]
#[doc(inline)]
pub use polygrad_train as train;

/// A tensor of literal values, as by [`Tensor::new`]: on the device `cpu`, or on the one given as a second argument.
///
/// ```
/// use polygrad::{DType, Device, tensor};
///
/// # fn main() -> polygrad::Result<()> {
/// let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
/// let y = tensor!([0.5, 1.5], (&Device::new("cpu")?, DType::F64))?;
/// assert_eq!((x.dims(), y.dtype()), (vec![2, 2], DType::F64));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! tensor {
    ($data:expr $(,)?) => {
        $crate::Device::new("cpu").and_then(|device| $crate::Tensor::new($data, &device))
    };
    ($data:expr, $place:expr $(,)?) => {
        $crate::Tensor::new($data, $place)
    };
}

/// Profiles of a step by op, shapes and module: `profile(|| step())`, or [`profile::Profiler`] for several steps.
#[doc(inline)]
pub use polygrad_nn::profile;

pub mod communicator;

/// Layers, losses, models, and checkpoints.
pub mod nn {
    // The derive macro for users of this crate, instead of the one for polygrad-nn.
    pub use polygrad_derive::FacadeModule as Module;
    #[doc(hidden)]
    pub use polygrad_nn::optim;
    pub use polygrad_nn::*;
}

/// Optimizers and learning rate schedules.
pub mod optim {
    pub use polygrad_nn::optim::*;
}

/// Gradients beyond `backward`: your own ops, checks, what a backward pass keeps, and mixed precision.
pub mod autograd {
    pub use polygrad_tensor::{
        BackwardOptions, CustomOp, GradId, autocast, autocast_dtype, checkpoint, checkpoint_rows, enable_grad,
        gradcheck, gradgradcheck, is_grad_enabled, numerical_gradient,
    };
}

/// For authors of backends: the trait, its types, and the registry.
pub mod backend {
    pub use polygrad_core::*;
}

/// What nearly every program needs.
pub mod prelude {
    pub use crate::nn::{Compile, Forward, Module};
    pub use crate::optim::Optimizer;
    pub use crate::tensor;
    #[cfg(feature = "cpu")]
    pub use polygrad_cpu::Cpu;
    pub use polygrad_tensor::{
        AnyBackend, Backend, DType, Device, Error, Gradients, Index, Result, Shape, Tensor, no_grad,
    };
}
