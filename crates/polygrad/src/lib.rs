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
pub use polygrad_tensor::*;
#[cfg(feature = "torch")]
pub use polygrad_torch as torch;
#[cfg(feature = "wgpu")]
pub use polygrad_wgpu as wgpu;

/// Layers, losses, optimizers, schedules and checkpoints.
pub mod nn {
    // The derive macro whose code names this crate, in place of the one that names polygrad-nn.
    pub use polygrad_derive::FacadeModule as Module;
    pub use polygrad_nn::*;
}

/// For those who write a backend: the trait, its words, and the registry.
pub mod backend {
    pub use polygrad_core::*;
}

/// What nearly every program needs.
pub mod prelude {
    pub use crate::nn::{Compile, Forward, Module, Optimizer};
    #[cfg(feature = "cpu")]
    pub use polygrad_cpu::Cpu;
    pub use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Gradients, Result, Tensor, no_grad};
}
