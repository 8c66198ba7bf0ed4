//! Selecting and running cases.

use std::collections::BTreeMap;

use polygrad_core::{Backend, Error, Result};
use polygrad_tensor::{DType, Device};

use crate::case::Case;
use crate::known::known;
use crate::options::{Mode, Options};
use crate::report::{Record, Report};
use crate::{errors, generated, near, ulp, vectors};

/// The cases selected by the options for a device.
///
/// # Errors
/// A folder of vectors that cannot be read; an unknown op or case, with similar names.
pub fn cases<B: Backend>(device: &Device<B>, options: &Options) -> Result<Vec<Case>> {
    let mut dtypes = device.capabilities().dtypes;
    if let Some(wanted) = &options.dtypes {
        dtypes.retain(|dtype| wanted.contains(dtype));
    }
    let mut cases = of_mode(&dtypes, options)?;
    if let Some(op) = &options.op {
        let all = cases.iter().map(Case::op);
        let missing = near::missing("op", op, all);
        cases.retain(|case| case.op() == op);
        refuse_none(&cases, missing)?;
    }
    if let Some(name) = &options.case {
        let missing = near::missing("case", name, cases.iter().map(Case::name));
        cases.retain(|case| case.name() == name || case.full_name() == *name);
        refuse_none(&cases, missing)?;
    }
    if let Some(most) = options.sample {
        cases = sampled(cases, most);
    }
    Ok(cases)
}

/// See [`Options::sample`].
fn sampled(cases: Vec<Case>, most: usize) -> Vec<Case> {
    let key = |case: &Case| (case.source(), case.op().to_owned(), case.dtype().name());
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for case in &cases {
        *counts.entry(key(case)).or_default() += 1;
    }
    let mut seen: BTreeMap<_, usize> = BTreeMap::new();
    let chosen = cases.into_iter().filter(|case| {
        let key = key(case);
        let count = counts.get(&key).copied().unwrap_or_default();
        let place = seen.entry(key).or_default();
        *place += 1;
        // The number of sampled cases up to an index is the sample's share of them, rounded up.
        let due = |place: usize| (place * most).div_ceil(count);
        most >= count || due(*place) > due(*place - 1)
    });
    chosen.collect()
}

fn of_mode(dtypes: &[DType], options: &Options) -> Result<Vec<Case>> {
    let gradients_alone = options.mode == Mode::Grad;
    let differences = |set| match dtypes.contains(&DType::F64) {
        true if gradients_alone => vectors::differences(set),
        _ => Vec::new(),
    };
    if let Some(folder) = &options.vectors {
        let set = vectors::folder(folder)?;
        let mut cases = vectors::recorded(&set, dtypes, gradients_alone);
        cases.extend(differences(&set));
        return Ok(cases);
    }
    let sets = vectors::built_in()?;
    let recorded = sets.iter().map(|set| vectors::recorded(set, dtypes, gradients_alone));
    let mut cases: Vec<Case> = recorded.flatten().collect();
    // Layers consist of ops, whose differences are checked already.
    cases.extend(differences(&sets[0]));
    for case in &mut cases {
        case.known = known(case.name());
    }
    if options.mode == Mode::Test {
        cases.extend(generated::cases(dtypes));
        cases.extend(ulp::cases(dtypes));
        cases.extend(errors::cases());
    }
    Ok(cases)
}

fn refuse_none(cases: &[Case], missing: Error) -> Result<()> {
    if cases.is_empty() { Err(missing) } else { Ok(()) }
}

/// Runs the cases selected by the options on a device, one after the other.
///
/// # Errors
/// Errors of [`cases`]. Failures of cases are part of the report.
pub fn run<B: Backend>(device: &Device<B>, options: &Options) -> Result<Report> {
    let cases = cases(device, options)?;
    let device = device.clone().into_any();
    let records = cases.iter().map(|case| Record::new(case, case.run(&device)));
    Ok(Report::new(device.to_string(), records.collect()))
}
