//! The driver suite as tests for `cargo test`.

use std::sync::Arc;

use libtest_mimic::{Completion, Failed, Trial};
use polygrad_core::Result;
use polygrad_core::compute::ComputeBackend;

use super::DriverOptions;
use super::suite::{Shared, chosen, status};
use crate::case::Status;

/// The cases selected by the options as tests, named `<name> driver <case>`. They run on several threads at once, on
/// one driver. Unsupported cases are shown as ignored.
///
/// ```no_run
/// use polygrad_conformance::driver::{DriverOptions, driver_harness};
/// use polygrad_conformance::libtest_mimic;
/// use polygrad_null::NullDriver;
///
/// let tests = driver_harness("null", || Ok(Box::new(NullDriver::default())), &DriverOptions::default());
/// libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
/// ```
pub fn driver_harness(
    name: &str,
    make: impl Fn() -> Result<Box<dyn ComputeBackend>> + Send + Sync + 'static,
    options: &DriverOptions,
) -> Vec<Trial> {
    let (make, shared) = (Arc::new(make), Arc::new(Shared::default()));
    let trials = chosen(options).into_iter().map(|case| {
        let (make, shared, options) = (Arc::clone(&make), Arc::clone(&shared), options.clone());
        Trial::ignorable_test(format!("{name} driver {}", case.name), move || {
            match status(&case, &shared, &*make, &options) {
                Status::Pass => Ok(Completion::Completed),
                Status::Unsupported(what) => Ok(Completion::ignored_with(what)),
                Status::Fail(what) => Err(Failed::from(what)),
            }
        })
    });
    trials.collect()
}
