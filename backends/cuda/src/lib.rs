//! A driver for NVIDIA GPUs: kernels are generated from one table of ops and compiled by NVRTC when they are first
//! needed; products use cuBLAS. The libraries are loaded at run time, so a program with this driver also runs
//! where they are missing.
//!
//! ```no_run
//! use polygrad_core::compute::{ComputeBackend, Unary};
//! use polygrad_core::{DType, UnaryOp};
//! use polygrad_cuda::CudaDriver;
//!
//! # fn main() -> polygrad_core::Result<()> {
//! let driver = CudaDriver::open(&"cuda".parse()?)?;
//! driver.init()?;
//! let x = driver.alloc(8)?;
//! driver.copy_htod(x, &[(-1f32).to_ne_bytes(), 2f32.to_ne_bytes()].concat())?;
//! driver.unary(&Unary { op: UnaryOp::Relu, dtype: DType::F32, len: 2, input: x, output: x })?;
//! driver.free(x)
//! # }
//! ```

mod driver;
#[cfg(feature = "nccl")]
mod nccl;
mod program;
pub mod runtime;
mod source;
mod strides;
mod table;

pub use driver::CudaDriver;
#[cfg(feature = "nccl")]
pub use nccl::Nccl;
