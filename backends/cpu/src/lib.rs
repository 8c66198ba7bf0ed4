//! Polygrad's native CPU backend.
#![allow(unsafe_code, reason = "kernels work on raw memory; every block says why it is sound")]

mod backend;
mod conv;
#[cfg(feature = "driver")]
mod driver;
mod entry;
mod fused;
mod loops;
mod ops;
mod tensor;
mod view;

#[cfg(feature = "driver")]
pub use driver::CpuDriver;
pub use entry::{Cpu, entry};
pub use polygrad_cpu_kernels::{CpuDevice, Kernels, Level, Limits, ThreadPool, available_threads};
pub use tensor::CpuTensor;

use polygrad_cpu_kernels::{Pointer, buffers, gemm, math, simd};

/// The memory of tensors: counters, timings and limits of the buffer pool, which all CPU devices of a process share.
pub mod memory {
    pub use crate::buffers::{MemoryStats, PoolTime, flush, reset_peak, set_limit, stats, time_pool};
}
