#![cfg_attr(feature = "cpu", doc = include_str!("../../../README.md"))]

mod backends;

#[cfg(feature = "cpu")]
pub use polygrad_cpu as cpu;
pub use polygrad_nn as nn;
pub use polygrad_tensor::*;

/// For those who write a backend: the trait, its words, and the registry.
pub mod backend {
    pub use polygrad_core::*;
}

/// What nearly every program needs.
pub mod prelude {
    #[cfg(feature = "cpu")]
    pub use polygrad_cpu::Cpu;
    pub use polygrad_nn::{Forward, Module, Optimizer};
    pub use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Gradients, Result, Tensor, no_grad};
}
