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
    /// Threads of a block, a power of two: what kernels are compiled for.
    pub block: u32,
    /// How many blocks occupy the device fully.
    pub busy: u32,
    /// Whether it has instructions for products of 16-bit matrices, bf16 among them: from compute capability 8.0 on.
    pub matrices: bool,
}

/// A compiled kernel: what [`Runtime::compile`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function(pub usize);

/// `C = alpha · op(A) op(B) + beta · C` for each of a batch, all **column-major**, as cuBLAS has it.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Of A and B.
    pub dtype: DType,
    /// Of C.
    pub dtype_c: DType,
    /// How A is read.
    pub trans_a: Transpose,
    /// How B is read.
    pub trans_b: Transpose,
    /// Rows of C, columns of C, terms of each sum: all above 0.
    pub dims: [i32; 3],
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of what C held; 0: C is not read.
    pub beta: f64,
    /// Addresses of A, B and C.
    pub matrices: [u64; 3],
    /// Elements from one column to the next, in A, B and C.
    pub leading: [i32; 3],
    /// Elements from one matrix to the next, in A, B and C.
    pub strides: [i64; 3],
    /// How many.
    pub count: i32,
    /// Whether f32 may be multiplied with 10 bits of its digits.
    pub tf32: bool,
}

/// A copy to the host that has been submitted.
pub trait Readback: Send {
    /// Waits for the bytes.
    ///
    /// # Errors
    /// When the copy, or something ordered before it, failed.
    fn wait(self: Box<Self>) -> Result<Vec<u8>>;
}

/// A CUDA device and its stream. Calls take effect in the order in which they were made, and may return
/// before they are done.
///
/// Callers answer for addresses and extents: the driver checks them all before it calls.
pub trait Runtime: Debug + Send + Sync {
    /// The device.
    fn facts(&self) -> &Facts;

    /// Memory of so many bytes, more than 0, at a multiple of 256.
    fn alloc(&self, bytes: usize) -> Result<u64>;

    /// Gives it back.
    fn free(&self, address: u64) -> Result<()>;

    /// From the host; the bytes are taken before it returns.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()>;

    /// To the host.
    fn read(&self, address: u64, bytes: usize) -> Result<Box<dyn Readback>>;

    /// Within the device, between places that do not overlap.
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()>;

    /// Compiles the function of this name in a source in CUDA C.
    fn compile(&self, source: &str, name: &str) -> Result<Function>;

    /// Runs a kernel with so many blocks of so many threads. The arguments are the fields of its
    /// `Args`, each of 8 bytes.
    fn launch(&self, function: Function, blocks: u32, threads: u32, args: &[u64]) -> Result<()>;

    /// Products by cuBLAS.
    fn gemm(&self, product: &Product) -> Result<()>;

    /// Waits until all is done.
    fn synchronize(&self) -> Result<()>;

    /// Begins to record what this thread calls, instead of running it. Others go on; one thread records at a time.
    fn begin_capture(&self) -> Result<()>;

    /// What was recorded since.
    fn end_capture(&self) -> Result<Box<dyn Any + Send + Sync>>;

    /// Runs calls at once, even though this thread is recording.
    fn aside(&self, calls: &mut dyn FnMut() -> Result<()>) -> Result<()>;

    /// Runs what was recorded.
    fn replay(&self, graph: &(dyn Any + Send + Sync)) -> Result<()>;
}
