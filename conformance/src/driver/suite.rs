//! Running of cases.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use polygrad_core::Result;
use polygrad_core::compute::ComputeBackend;

use super::case::{Cases, DriverCase};
use super::cases;
use super::fixture::Fixture;
use super::options::{DriverOptions, MakeDriver};
use super::outcome::{CaseError, CaseResult};
use crate::case::Status;

/// The cases selected by the options.
pub(super) fn chosen(options: &DriverOptions) -> Vec<DriverCase> {
    let mut all = Cases::default();
    cases::collect(&mut all);
    let wanted = |case: &DriverCase| options.case.as_ref().is_none_or(|part| case.name.contains(part));
    all.0.into_iter().filter(wanted).collect()
}

/// The driver that cases share.
#[derive(Default)]
pub(super) struct Shared(OnceLock<Box<dyn ComputeBackend>>);

impl Shared {
    pub(super) fn get(&self, make: MakeDriver<'_>) -> Result<&dyn ComputeBackend> {
        if let Some(driver) = self.0.get() {
            return Ok(&**driver);
        }
        let driver = make()?;
        driver.init()?;
        Ok(&**self.0.get_or_init(|| driver))
    }
}

/// Runs a case. Also checks that all its memory can be freed, and that read-only memory is unchanged.
pub(super) fn status(case: &DriverCase, shared: &Shared, make: MakeDriver<'_>, options: &DriverOptions) -> Status {
    let run = || -> CaseResult {
        let fixture = Fixture::new(shared.get(make)?, make, options);
        let done = (case.run)(&fixture);
        let end = fixture.finish();
        done.and(end)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Status::Pass,
        Ok(Err(CaseError::Wrong(what))) => Status::Fail(what),
        Ok(Err(CaseError::Lacks(what))) => Status::Unsupported(what),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Status::Fail(format!("it panics: {}", text.unwrap_or("without words")))
        }
    }
}

/// The results of a driver, case by case. Its [`Display`](fmt::Display) form has the counts and the failures.
#[derive(Clone, Debug)]
pub struct DriverReport {
    /// The driver's name.
    pub driver: String,
    /// Each case and its result, in the order in which they ran.
    pub records: Vec<(String, Status)>,
}

impl DriverReport {
    /// Each failure: the case, and what is wrong.
    pub fn complaints(&self) -> Vec<String> {
        let failed = self.records.iter().filter_map(|(name, status)| match status {
            Status::Fail(what) => Some(format!("{name}: {what}")),
            _ => None,
        });
        failed.collect()
    }

    /// The numbers of cases that passed, failed, and are unsupported.
    pub fn counts(&self) -> [usize; 3] {
        let of = |wanted: fn(&Status) -> bool| self.records.iter().filter(|(_, status)| wanted(status)).count();
        [
            of(Status::passes),
            of(|status| matches!(status, Status::Fail(_))),
            of(|status| matches!(status, Status::Unsupported(_))),
        ]
    }
}

impl fmt::Display for DriverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [pass, fail, lacks] = self.counts();
        writeln!(f, "{}: {pass} passed, {fail} failed, {lacks} not offered", self.driver)?;
        for (name, status) in &self.records {
            if let Status::Unsupported(what) = status {
                writeln!(f, "not offered: {name}: {what}")?;
            }
        }
        for complaint in self.complaints() {
            writeln!(f, "FAIL {complaint}")?;
        }
        Ok(())
    }
}

/// Runs the cases selected by the options on a driver, one after the other. Most share one driver; those about
/// initialization create their own.
///
/// ```
/// use polygrad_conformance::driver::{DriverOptions, run_driver};
/// use polygrad_null::NullDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let options = DriverOptions {
///     values: false,
///     case: Some("free".to_owned()),
///     ..DriverOptions::default()
/// };
/// let report = run_driver(&|| Ok(Box::new(NullDriver::default())), &options)?;
/// assert!(report.complaints().is_empty(), "{report}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If no driver can be created. Failures of cases are part of the report.
pub fn run_driver(make: MakeDriver<'_>, options: &DriverOptions) -> Result<DriverReport> {
    let shared = Shared::default();
    let driver = shared.get(make)?.name().to_owned();
    let records = chosen(options)
        .into_iter()
        .map(|case| {
            let status = status(&case, &shared, make, options);
            (case.name, status)
        })
        .collect();
    Ok(DriverReport { driver, records })
}
