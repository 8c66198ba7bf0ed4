//! One suite that holds every backend to the same cases.

mod case;
mod compare;
mod errors;
mod faults;
mod generated;
#[cfg(feature = "harness")]
mod harness;
mod known;
mod near;
mod options;
mod report;
mod run;
mod support;
mod tolerance;
mod ulp;
mod vectors;
mod wrapper;

pub use case::{Case, Outcome, Source, Status};
pub use faults::{Fault, Faults};
pub use generated::{Timing, perf};
#[cfg(feature = "harness")]
pub use harness::harness;
#[cfg(feature = "harness")]
pub use libtest_mimic;
pub use options::{Mode, Options};
pub use report::{Counts, Record, Report};
pub use run::{cases, run};
pub use support::support_page;
pub use wrapper::{Call, Hooks, Wrapped};

/// The judge: a device of the reference backend, which is itself held to PyTorch.
pub fn reference() -> polygrad_tensor::Device {
    polygrad_tensor::Device::<polygrad_reference::Reference>::default().into_any()
}
