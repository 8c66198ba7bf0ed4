//! The suite as tests for `cargo test`.

use std::sync::Arc;

use libtest_mimic::{Completion, Failed, Trial};
use polygrad_core::{Backend, Result};
use polygrad_tensor::Device;

use crate::options::Options;
use crate::report::Record;
use crate::run::cases;

/// The cases that the options choose as tests, each named after what it checks. In a test target with `harness = false`:
///
/// ```no_run
/// use polygrad_conformance::{Options, harness, libtest_mimic};
/// use polygrad_reference::Reference;
/// use polygrad_tensor::Device;
///
/// fn main() -> polygrad_tensor::Result<()> {
///     let tests = harness("reference", &Device::<Reference>::default(), &Options::default())?;
///     libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
/// }
/// ```
///
/// A case that the backend does not support is shown as ignored.
///
/// # Errors
/// Those of [`cases`](crate::cases()).
pub fn harness<B: Backend>(name: &str, device: &Device<B>, options: &Options) -> Result<Vec<Trial>> {
    let device = Arc::new(device.clone().into_any());
    let trials = cases(&device, options)?.into_iter().map(|case| {
        let device = Arc::clone(&device);
        Trial::ignorable_test(format!("{name} {}", case.full_name()), move || {
            let record = Record::new(&case, case.run(&device));
            match (record.complaint(), record.unsupported()) {
                (Some(complaint), _) => Err(Failed::from(complaint)),
                (None, Some(reason)) => Ok(Completion::ignored_with(reason)),
                (None, None) => Ok(Completion::Completed),
            }
        })
    });
    Ok(trials.collect())
}
