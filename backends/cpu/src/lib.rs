//! Polygrad's native CPU backend.
#![allow(unsafe_code, reason = "kernels work on raw memory; every block says why it is sound")]

mod backend;
mod buffers;
mod conv;
mod device;
#[cfg(feature = "driver")]
mod driver;
mod fused;
mod gemm;
mod limits;
mod loops;
mod math;
mod ops;
mod pool;
mod simd;
mod tensor;
mod view;

pub use device::{Cpu, CpuDevice, Kernels, entry};
#[cfg(feature = "driver")]
pub use driver::CpuDriver;
pub use limits::Limits;
pub use pool::{ThreadPool, available_threads};
pub use simd::Level;
pub use tensor::CpuTensor;

/// The memory of tensors: counters, times and bounds of the buffer pool, which all CPU devices of a process share.
pub mod memory {
    pub use crate::buffers::{MemoryStats, PoolTime, flush, reset_peak, set_limit, stats, time_pool};
}
