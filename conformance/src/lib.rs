//! One suite of cases for every backend: PyTorch's results and gradients, every op in every dtype and layout compared
//! with a simple reference, exactly rounded functions, and the errors of invalid input. See `docs/conformance.md`.
//!
//! ```
//! use polygrad_conformance::{Options, run};
//! use polygrad_reference::Reference;
//! use polygrad_tensor::Device;
//!
//! # fn main() -> polygrad_tensor::Result<()> {
//! let options = Options {
//!     op: Some("matmul".to_owned()),
//!     ..Options::default()
//! };
//! let report = run(&Device::<Reference>::default(), &options)?;
//! assert!(report.complaints().is_empty(), "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! A [`DynBackend`](polygrad_core::DynBackend) that is no [`Backend`](polygrad_core::Backend) is tested through a
//! device of its own: `Device::<AnyBackend>::from_inner(AnyDevice::from_parts(backend, device))`. `harness` (feature
//! `harness`) turns the cases into tests of a backend's own crate; [`Wrapped`] observes a device, and [`Faults`] makes
//! it fail.

mod case;
pub mod communicator;
mod compare;
pub mod differences;
pub mod driver;
mod errors;
mod faults;
mod generated;
#[cfg(feature = "harness")]
mod harness;
mod known;
mod near;
mod options;
pub mod programs;
mod report;
mod run;
mod support;
mod tolerance;
mod ulp;
mod vectors;

pub use case::{Case, Outcome, Source, Status};
pub use faults::{Fault, Faults};
pub use generated::{Timing, perf};
#[cfg(feature = "harness")]
pub use harness::harness;
#[cfg(feature = "harness")]
pub use libtest_mimic;
pub use options::{Mode, Options};
pub use polygrad_tensor::wrapped::{Call, Hooks, Wrapped};
pub use report::{Counts, Record, Report};
pub use run::{cases, run};
pub use support::support_page;
pub use vectors::{Blind, blind, specials};

/// The reference for comparisons: a device of the reference backend, which is itself compared with PyTorch.
pub fn reference() -> polygrad_tensor::Device {
    polygrad_tensor::Device::<polygrad_reference::Reference>::default().into_any()
}
