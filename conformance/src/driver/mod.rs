//! The suite for drivers: it checks any [`ComputeBackend`](polygrad_core::compute::ComputeBackend) against the contract
//! of that trait. Also drivers for tests: one that records its calls, and one that fails on request.

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
