//! Polygrad on [luminal](https://docs.rs/luminal), whose tensors are nodes of a graph.
//!
//! An op is *recorded*. When a value is read, at [`synchronize`](polygrad_core::Backend::synchronize), or when much has
//! been recorded, a luminal `Graph` is built of the recorded ops that are needed, and executed. Values that still have
//! a handle are kept, and the recorded ops are dropped. Thus memory does not grow over training steps.
//!
//! luminal's own ops compute sums, differences, products, reciprocals, roots, sines, logarithms and reductions by sum
//! in f32. They also compute all matrix products and convolutions, with the kernel into which its CPU compiler turns a
//! product and a sum. The rest, including everything in i64 and bool, are custom nodes in the same graph (luminal's
//! `Operator`).
//!
//! ```
//! use polygrad_luminal::Luminal;
//! use polygrad_tensor::{Device, Result, Tensor};
//!
//! # fn main() -> Result<()> {
//! let device = Device::<Luminal>::default();
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2], &device)?;
//! // Nothing is computed before this is read.
//! let y = x.matmul(&x)?.add(&x)?;
//! assert_eq!(y.to_vec::<f32>()?, [8.0, 12.0, 18.0, 26.0]);
//! # Ok(())
//! # }
//! ```

mod backend;
mod device;
mod elementwise;
mod index;
mod interop;
mod kernel;
mod matmul;
mod movement;
mod pending;
mod primitive;
mod reduce;
mod run;
mod support;
mod tensor;
mod tracker;
mod values;
mod window;

pub use backend::Luminal;
pub use device::{LuminalDevice, entry};
pub use interop::{from_graph, into_graph};
pub use luminal;
pub use tensor::LuminalTensor;
