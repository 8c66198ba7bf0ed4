//! The suite as tests for `cargo test`.

use std::collections::BTreeMap;
use std::sync::Arc;

use libtest_mimic::{Completion, Failed, Trial};
use polygrad_core::{Backend, Result};
use polygrad_tensor::{AnyBackend, Device};

use crate::case::Case;
use crate::generated::FAMILIES;
use crate::options::{Mode, Options};
use crate::report::Record;
use crate::run::cases;

/// The cases selected by the options as tests, one for each source and op, named `<name> <source> <op>`. If the options
/// select nothing, there are also calls with random shapes and arguments, named `<name> random <family>`. In a test
/// target with `harness = false`:
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
/// A test fails if any of its cases does, and names them. It is shown as ignored if the backend supports none of its
/// cases.
///
/// # Errors
/// Errors of [`cases`](crate::cases()).
pub fn harness<B: Backend>(name: &str, device: &Device<B>, options: &Options) -> Result<Vec<Trial>> {
    let mut groups: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases(device, options)? {
        let group = format!("{name} {} {}", case.source(), case.op());
        groups.entry(group).or_default().push(case);
    }
    let dtypes = device.capabilities().dtypes;
    let device = Arc::new(device.clone().into_any());
    let everything = options.op.is_none()
        && options.case.is_none()
        && options.vectors.is_none()
        && options.dtypes.is_none()
        && options.sample.is_none();
    let families = if options.mode == Mode::Test && everything {
        &FAMILIES[..]
    } else {
        &[]
    };
    let random: Vec<Trial> = families
        .iter()
        .map(|family| {
            let (device, dtypes) = (Arc::clone(&device), dtypes.clone());
            Trial::test(format!("{name} random {}", family.name), move || {
                family.hold(&dtypes, &device).map_err(Failed::from)
            })
        })
        .collect();
    let trials = groups.into_iter().map(|(group, cases)| {
        let device = Arc::clone(&device);
        Trial::ignorable_test(group, move || hold(&device, &cases))
    });
    Ok(trials.chain(random).collect())
}

fn hold(device: &Device<AnyBackend>, cases: &[Case]) -> std::result::Result<Completion, Failed> {
    let records: Vec<Record> = cases.iter().map(|case| Record::new(case, case.run(device))).collect();
    let complaints: Vec<String> = records.iter().filter_map(Record::complaint).collect();
    if !complaints.is_empty() {
        let head = format!("{} of {} cases:", complaints.len(), records.len());
        return Err(Failed::from(format!("{head}\n{}", complaints.join("\n"))));
    }
    match records.iter().map(Record::unsupported).collect::<Option<Vec<_>>>() {
        Some(reasons) => Ok(Completion::ignored_with(reasons.first().copied().unwrap_or_default())),
        None => Ok(Completion::Completed),
    }
}
