#![cfg_attr(feature = "cpu", doc = include_str!("../../../README.md"))]
#![cfg_attr(
    not(feature = "cpu"),
    doc = "Polygrad without its CPU backend: for programs that bring a backend of their own."
)]

mod backends;

/// The examples of docs/models.md, so that they stay true.
#[cfg(all(doctest, feature = "cpu"))]
#[doc = include_str!("../../../docs/models.md")]
struct ModelsPage;

/// Those of docs/engines.md.
#[cfg(all(doctest, feature = "cpu"))]
#[doc = include_str!("../../../docs/engines.md")]
struct EnginesPage;

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
#[cfg(feature = "luminal")]
pub use polygrad_luminal as luminal;
#[cfg(feature = "torch")]
pub use polygrad_torch as torch;
#[cfg(feature = "wgpu")]
pub use polygrad_wgpu as wgpu;

// All about tensors: also the types of arguments, wrappers of other crates' tensors, and what few programs name.
pub use polygrad_tensor as tensor;
pub use polygrad_tensor::{
    AnyBackend, Backend, DType, Device, Error, ErrorKind, Gradients, Index, Result, Shape, Tensor, manual_seed, no_grad,
};

/// A tensor of values that are written out, as by [`Tensor::new`]: on the device `cpu`, or where a second argument says.
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

/// Layers, losses, models, and checkpoints.
pub mod nn {
    // The derive macro whose code names this crate, in place of the one that names polygrad-nn.
    pub use polygrad_derive::FacadeModule as Module;
    #[doc(hidden)]
    pub use polygrad_nn::optim;
    pub use polygrad_nn::*;
}

/// Optimizers and schedules of their learning rate.
pub mod optim {
    pub use polygrad_nn::optim::*;
}

/// Gradients beyond `backward`: ops of one's own, checks, and what a backward pass keeps.
pub mod autograd {
    pub use polygrad_tensor::{
        BackwardOptions, CustomOp, GradId, checkpoint, enable_grad, gradcheck, gradgradcheck, is_grad_enabled,
        numerical_gradient,
    };
}

/// For those who write a backend: the trait, its words, and the registry.
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
    pub use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Gradients, Index, Result, Tensor, no_grad};
}
