//! The vocabulary and the interfaces of Polygrad.
//!
//! Everything that a backend and the library above it must agree on: [`Shape`] and [`Layout`], [`DType`],
//! [`HostTensor`], the ops, [`Error`], the trait [`Backend`] with its run-time form ([`DynBackend`],
//! [`AnyBackend`]), the trait [`ComputeBackend`](compute::ComputeBackend) for drivers, and the [`Registry`] that
//! finds a backend by name.
//! There are no kernels here.

mod any;
#[cfg(feature = "ndarray")]
mod arrays;
mod backend;
mod capabilities;
pub mod communicator;
mod composite;
pub mod compute;
pub mod decompose;
mod dispatch;
mod dtype;
mod dyn_backend;
mod error;
mod frames;
mod host;
mod layout;
mod local;
mod nearest;
pub mod observe;
mod open;
mod ops;
mod panic;
mod printable;
pub mod program;
mod random;
mod registry;
mod rng;
mod scalar;
mod shape;
mod spec;
pub mod timing;

pub use any::{AnyBackend, AnyDevice, AnyTensor, DynDevice, Identity};
pub use backend::{Backend, Computation, DeviceGraph};
pub use capabilities::Capabilities;
pub use composite::{BorderMode, Composite, InterpolateMode};
pub use dtype::{DType, Element};
pub use dyn_backend::{DynBackend, Outputs};
#[doc(hidden)]
pub use error::FailedLayer;
pub use error::{Error, ErrorKind, Operand, Result};
pub use frames::Frame;
pub use half::{bf16, f16};
pub use host::{HostBytes, HostTensor, collect, room};
#[doc(hidden)]
pub use inventory;
pub use layout::Layout;
#[doc(hidden)]
pub use local::with_local;
pub use nearest::nearest;
pub use open::open_file;
pub use ops::{
    Activation, AdamParams, ArgOp, BinaryOp, BlockScheme, CompareOp, ConvParams, CrossEntropyParams, Op, OpDesc,
    PoolParams, Prepack, ReduceOp, SavedTensor, SgdParams, SliceRange, TensorType, UnaryOp, window_positions,
};
#[doc(hidden)]
pub use ops::{Owned, Tensors};
pub use panic::panic_message;
pub use printable::printable;
pub use random::{Distribution, RandomKey, check as check_distribution, draw, philox4x32, random_host};
pub use registry::{Availability, BackendEntry, BuiltIn, Candidate, DeviceInfo, Registry};
pub use rng::Rng;
pub use scalar::Scalar;
pub use shape::{Axes, Extent, IntoShape, MAX_RANK, Shape};
pub use spec::DeviceSpec;
