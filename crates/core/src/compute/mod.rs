//! The second seam: chips that have memory and kernels, and no tensors.
//!
//! [`ComputeBackend`] is the trait that a driver implements; its documentation is the contract. The other types are what it is called with.

mod backend;
mod calls;
mod capabilities;
mod pointer;
mod program;
mod view;

pub use backend::{ComputeBackend, Driver, Readback};
pub use calls::{
    ArgReduce, Attention, Batch, Binary, Conv2d, CrossEntropy, CumSum, Elementwise, Fill, Gather, Gemm, LayerNorm,
    Pool2d, Random, Reduce, ReduceAxes, Scatter, Softmax, Sort, Transpose, Unary,
};
pub use capabilities::{DeviceKind, DriverCapabilities, Kernel};
pub use pointer::{AddressSpace, DevicePtr};
pub use program::{ElementwiseProgram, Step, Value};
pub use view::DeviceView;
