//! Polygrad's native CPU backend.
#![allow(unsafe_code, reason = "kernels work on raw memory; every block says why it is sound")]

mod buffers;
mod math;
mod pool;
mod simd;

pub use pool::{ThreadPool, available_threads};
pub use simd::Level;

/// The memory of tensors: counters and bounds of the buffer pool, which all CPU devices of a process share.
pub mod memory {
    pub use crate::buffers::{MemoryStats, flush, reset_peak, set_limit, stats};
}
