//! The suite for drivers: it holds any [`ComputeBackend`](polygrad_core::compute::ComputeBackend) to the contract of
//! that trait. And drivers for tests: one that records its calls, one that fails when it is told to.

mod call;
mod case;
mod cases;
mod fault;
mod fixture;
#[cfg(feature = "harness")]
mod harness;
mod hooked;
mod numbers;
mod options;
mod outcome;
mod probe;
mod record;
mod suite;

pub use call::DriverCall;
pub use fault::{DriverFault, FaultPlan, FaultyDriver};
#[cfg(feature = "harness")]
pub use harness::driver_harness;
pub use hooked::{DriverHooks, Hooked};
pub use options::{DriverOptions, MakeDriver};
pub use record::{Log, Recorder};
pub use suite::{DriverReport, run_driver};
