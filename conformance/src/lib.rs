//! One suite that holds every backend to the same cases: PyTorch's answers and gradients, every op in every dtype and
//! layout against a plain reference, exactly rounded functions, and the errors of bad input. `docs/conformance.md`
//! tells the whole of it.
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
//! A [`DynBackend`](polygrad_core::DynBackend) that is no [`Backend`](polygrad_core::Backend) is held to it through
//! a device of its own: `Device::<AnyBackend>::from_inner(AnyDevice::from_parts(backend, device))`. `harness`
//! (feature `harness`) makes tests of a backend's own crate out of the cases; [`Wrapped`] watches a device, and
//! [`Faults`] lets it fail.

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

/// The judge: a device of the reference backend, which is itself held to PyTorch.
pub fn reference() -> polygrad_tensor::Device {
    polygrad_tensor::Device::<polygrad_reference::Reference>::default().into_any()
}
