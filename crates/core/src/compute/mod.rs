//! The interface for drivers: chips that have memory and kernels, but no tensors.
//!
//! [`ComputeBackend`] is the trait that a driver implements; its documentation is the contract. The other types are
//! arguments of its methods.

mod backend;
mod call;
mod calls;
mod capabilities;
mod forward;
mod operand;
mod pointer;
mod products;
mod program;
mod recording;
mod touched;
mod view;

pub use backend::{ComputeBackend, Driver};
pub use call::Call;
pub use calls::{
    ArgReduce, Binary, ByteCopy, CrossEntropy, CumSum, Elementwise, Fill, Gather, LayerNorm, Random, Reduce,
    ReduceAxes, Scatter, Softmax, Sort, Unary,
};
pub use capabilities::{DriverCapabilities, Kernel};
pub use operand::{Access, Operand};
pub use pointer::{AddressSpace, DevicePtr};
pub use products::{Attention, AttentionBackward, Batch, Conv2d, Gemm, Pool2d, Transpose};
pub use program::{ElementwiseProgram, Step, Value};
pub use recording::Recording;
pub use view::DeviceView;
