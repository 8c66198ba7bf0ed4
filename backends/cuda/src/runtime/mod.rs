//! The interface through which the driver uses CUDA. Tests put an emulator behind it, so that everything above runs on
//! a machine without a GPU.

mod cuda;
mod errors;
mod handles;
mod kept;
mod libraries;
pub mod nvrtc;

use std::any::Any;
use std::fmt::Debug;

use polygrad_core::compute::Transpose;
use polygrad_core::{DType, Result};

pub(crate) use cuda::Cuda;
pub(crate) use libraries::devices;
#[cfg(feature = "nccl")]
pub(crate) use {errors::failed, libraries::nccl};

/// Properties of the device that kernels depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Threads per block, a power of two; kernels are compiled for it.
    pub block: u32,
    /// The number of blocks that occupy the device fully.
    pub busy: u32,
    /// Whether it has instructions for products of 16-bit matrices, including bf16: true from compute capability 8.0
    /// on.
    pub matrices: bool,
}

/// A compiled kernel, from [`Runtime::compile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function(pub usize);

/// `C = alpha · op(A) op(B) + beta · C` for each of a batch, all **column-major**, as in cuBLAS.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The dtype of A and B.
    pub dtype: DType,
    /// The dtype of C.
    pub dtype_c: DType,
    /// Whether A is transposed.
    pub trans_a: Transpose,
    /// Whether B is transposed.
    pub trans_b: Transpose,
    /// Rows of C, columns of C, and terms of each sum: all above 0.
    pub dims: [i32; 3],
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the previous C; if it is 0, C is not read.
    pub beta: f64,
    /// Addresses of A, B and C.
    pub matrices: [u64; 3],
    /// Elements from one column to the next, in A, B and C.
    pub leading: [i32; 3],
    /// Elements from one matrix to the next, in A, B and C.
    pub strides: [i64; 3],
    /// Number of products.
    pub count: i32,
    /// Whether f32 operands may be rounded to 10 bits of mantissa.
    pub tf32: bool,
}

/// A copy to the host that has been submitted.
pub trait Readback: Send {
    /// Waits for the bytes.
    ///
    /// # Errors
    /// If the copy, or something ordered before it, failed.
    fn wait(self: Box<Self>) -> Result<Vec<u8>>;
}

/// A CUDA device and its stream. Calls take effect in the order in which they were made, and may return before they are
/// done.
///
/// Callers guarantee addresses and extents: the driver checks them all before each call.
pub trait Runtime: Debug + Send + Sync {
    /// The device.
    fn facts(&self) -> &Facts;

    /// Allocates memory of `bytes` bytes, more than 0, at a multiple of 256.
    fn alloc(&self, bytes: usize) -> Result<u64>;

    /// Frees memory.
    fn free(&self, address: u64) -> Result<()>;

    /// Copies from the host; the bytes have been read when it returns.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()>;

    /// Copies to the host.
    fn read(&self, address: u64, bytes: usize) -> Result<Box<dyn Readback>>;

    /// Copies within the device, between ranges that do not overlap.
    /// Compiles the function of this name in a CUDA C source.
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()>;

    /// Compiles the function of this name in a source in CUDA C.
    fn compile(&self, source: &str, name: &str) -> Result<Function>;

    /// Runs a kernel with `blocks` blocks of `threads` threads. The arguments are the fields of its `Args`, each of 8
    /// bytes.
    fn launch(&self, function: Function, blocks: u32, threads: u32, args: &[u64]) -> Result<()>;

    /// Computes products with cuBLAS.
    fn gemm(&self, product: &Product) -> Result<()>;

    /// Waits until all work is done.
    fn synchronize(&self) -> Result<()>;

    /// Begins to record this thread's calls instead of running them. Other threads are not affected; one thread records
    /// at a time.
    fn begin_capture(&self) -> Result<()>;

    /// Ends recording, and returns the recorded graph.
    fn end_capture(&self) -> Result<Box<dyn Any + Send + Sync>>;

    /// Runs calls immediately, even if this thread is recording.
    fn aside(&self, calls: &mut dyn FnMut() -> Result<()>) -> Result<()>;

    /// Runs a recorded graph.
    fn replay(&self, graph: &(dyn Any + Send + Sync)) -> Result<()>;
}
