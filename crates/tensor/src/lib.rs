//! Tensors with automatic differentiation, on any backend.
//!
//! [`Tensor`] is an array on a [`Device`]; ops on tensors that require a gradient are recorded in the tensors
//! themselves, and [`Tensor::backward`] gives [`Gradients`]. There is no global graph and no lock: a graph is freed
//! when its tensors are dropped.
//!
//! ```
//! use polygrad_reference::Reference;
//! use polygrad_tensor::{Device, Tensor};
//!
//! # fn main() -> polygrad_tensor::Result<()> {
//! // One backend, chosen here; `Device::new("cpu")?` chooses among all registered ones when the program runs.
//! let device = Device::<Reference>::default();
//! let x = Tensor::var("x", Tensor::new([1.0f32, 2.0, 3.0], &device)?)?;
//! let y = ((&x * &x)? + 1.0)?.sum_all()?;
//! let gradients = y.backward()?;
//! assert_eq!(gradients.require(&x)?.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```

mod accumulated;
mod activity;
#[cfg(feature = "ndarray")]
mod arrays;
mod autocast;
mod backward;
mod capture;
mod checkpoint;
mod compiled;
mod custom;
mod device;
mod display;
mod erased;
mod flops;
mod gradcheck;
mod graph;
mod hook;
mod operand;
mod operators;
mod ops;
mod place;
mod random;
mod rules;
mod tensor;
mod tracked;
pub mod wrapped;

pub use activity::{Activity, activity};
pub use autocast::{autocast, autocast_dtype};
pub use backward::{BackwardOptions, GradId, Gradients};
pub use capture::Capture;
pub use checkpoint::{checkpoint, checkpoint_rows};
pub use compiled::Compiled;
pub use custom::CustomOp;
pub use device::Device;
#[doc(hidden)]
pub use flops::add_flops;
pub use flops::{count_flops, flops_counted};
pub use gradcheck::{gradcheck, gradgradcheck, numerical_gradient};
pub use graph::{enable_grad, is_grad_enabled, next_node_id, no_grad};
#[doc(hidden)]
pub use hook::{OpCall, has_op_hook, with_op_hook};
#[cfg(feature = "ndarray")]
pub use ndarray;
pub use operand::Operand;
pub use ops::inference;
pub use ops::{
    Attention, ClampBound, Index, InterpolateMode, IntoAxes, IntoData, IntoIndex, PadMode, Resize, RoundingMode,
};
pub use place::Place;
pub use polygrad_core::{
    Activation, AdamParams, AnyBackend, Axes, Backend, BlockScheme, ConvParams, CrossEntropyParams, DType,
    Distribution, Element, Error, ErrorKind, Frame, HostTensor, IntoShape, PoolParams, Prepack, Registry, Result,
    Scalar, SgdParams, Shape, SliceRange, bf16, f16,
};
pub use random::{GeneratorState, manual_seed};
pub use tensor::{IntoBackend, Tensor};
