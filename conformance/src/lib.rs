//! One suite that holds every backend to the same cases.

mod case;
mod compare;
mod errors;
mod generated;
#[cfg(feature = "harness")]
mod harness;
mod known;
mod near;
mod options;
mod report;
mod run;
mod tolerance;
mod ulp;
mod vectors;

pub use case::{Case, Outcome, Source, Status};
#[cfg(feature = "harness")]
pub use harness::harness;
#[cfg(feature = "harness")]
pub use libtest_mimic;
pub use options::{Mode, Options};
pub use report::{Counts, Record, Report};
pub use run::{cases, run};
