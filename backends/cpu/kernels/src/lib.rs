//! The lower half of the CPU backend: vector instructions, threads, memory, matrix products, convolutions.
//!
//! A crate below `polygrad-cpu`, its only user, so that the two are compiled side by side.
#![allow(unsafe_code, reason = "kernels work on raw memory; every block says why it is sound")]
#![allow(missing_docs, reason = "one crate uses this, whose modules they were")]

pub mod buffers;
pub mod conv;
mod device;
pub mod gemm;
mod limits;
pub mod math;
mod pointer;
mod pool;
pub mod simd;

pub use device::{CpuDevice, Kernels};
pub use limits::Limits;
pub use pointer::Pointer;
pub use pool::{ThreadPool, available_threads};
pub use simd::Level;
