//! A backend made of any driver.
//!
//! A driver, [`ComputeBackend`](polygrad_core::compute::ComputeBackend), has memory and kernels. [`Compute`] turns them
//! into tensors: memory that is counted, cached and reused; views without copies; broadcasting; and chains of
//! element-wise ops that run as one kernel when a value is needed. Ops without a kernel are made of those that the
//! driver has or, if nothing else helps, computed on the host, which
//! [`Backend::supports`](polygrad_core::Backend::supports) and [`DeviceStats::host_ops`] report.

mod array;
mod backend;
mod chain;
mod device;
mod elementwise;
mod entry;
mod fused;
mod graph;
mod host;
mod index;
mod matmul;
mod memory;
mod movement;
mod reduce;
mod single;
mod tensor;
mod window;

pub use backend::Compute;
pub(crate) use device::Context;
pub use device::{ComputeDevice, DeviceStats};
pub use entry::entry;
pub use memory::MemoryStats;
pub use tensor::ComputeTensor;
