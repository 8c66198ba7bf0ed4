//! The workloads used to time Polygrad, each written once, for any backend.
//!
//! A [`Case`] is one piece of work, such as `mlp-rl adam` or `gemm 32x10x128`; [`cases`] lists them, and
//! [`Case::prepare`] creates a step that can be run any number of times. Inputs, targets and weights are the same
//! numbers on every backend (see [`data`]), so that the losses can be compared with those of other programs that do the
//! same work.
//!
//! ```
//! use polygrad_cpu::Cpu;
//! use polygrad_tensor::Device;
//! use polygrad_workloads::select;
//!
//! # fn main() -> polygrad_tensor::Result<()> {
//! let case = select("mlp-rl/adam")?.remove(0);
//! let mut training = case.prepare(&Device::<Cpu>::default())?;
//! let first = training.step()?.expect("a training step has a loss");
//! let second = training.step()?.expect("a training step has a loss");
//! assert!(second < first);
//! assert_eq!(case.amount().flops, 3 * 2 * 32 * (4 * 64 + 64 * 64 + 64 * 2) - 2 * 32 * 4 * 64);
//! # Ok(())
//! # }
//! ```

mod attention;
mod case;
mod cnn;
pub mod data;
mod dispatch;
mod elementwise;
mod extents;
mod gemm;
mod gpt;
mod lstm;
mod mlp;
mod prepared;
mod qlinear;
mod resnet;
mod training;

pub use case::{Amount, Case, cases, select, workloads};
pub use prepared::{Prepared, Step, Weight};
pub use training::{Captured, Eager, Mode};
