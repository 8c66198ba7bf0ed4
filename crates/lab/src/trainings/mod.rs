//! Random trainings: small models trained for five steps, and repeated with other numbers of threads, recorded, stopped
//! and resumed, lost and resumed, and by two ranks.

mod model;
mod run;
mod spec;

use std::fmt;

pub(crate) use self::run::Way;
use polygrad_console::failure::Result;
use polygrad_console::progress::say;

use self::run::{Left, judge};
use self::spec::Training;

/// The results of a search over many trainings.
#[derive(Default)]
pub(crate) struct Report {
    /// The number of trainings.
    pub(crate) trainings: u64,
    /// The number of further runs of them that were compared.
    pub(crate) compared: u64,
    /// The number of trainings that always end with the same error.
    pub(crate) refused: u64,
    /// The differences: the smallest training that shows each, and a description.
    pub(crate) faults: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trainings,
            compared,
            refused,
            faults,
        } = self;
        write!(
            f,
            "{trainings} trainings, {refused} of them refused, {compared} runs compared: {} differ",
            faults.len()
        )
    }
}

/// Draws `count` trainings of a seed, starting with index `first`, and compares their runs on the device that a string
/// names.
///
/// # Errors
/// If the device cannot be opened.
pub(crate) fn check(backend: &str, seed: u64, first: u64, count: u64) -> Result<Report> {
    let ways = Way::of(backend)?;
    let mut report = Report::default();
    for number in first..first.saturating_add(count) {
        let training = Training::draw(seed, number);
        report.trainings += 1;
        let whole = Left::of(&training, backend, Way::Whole, 0);
        report.refused += u64::from(whole.is_err());
        for &way in &ways {
            if !way.is_for(&training) {
                continue;
            }
            report.compared += 1;
            if judge(&training, backend, way).is_ok() {
                continue;
            }
            let (smallest, why) = smallest(training.clone(), backend, way);
            let text = format!("FAIL training {number} of seed {seed}, {way}: {why}\n{smallest:#?}");
            say(&text);
            report.faults.push(text);
        }
    }
    Ok(report)
}

/// Removes parts that are not needed to show the difference.
fn smallest(mut training: Training, backend: &str, way: Way) -> (Training, String) {
    let mut why = judge(&training, backend, way).err().unwrap_or_default();
    loop {
        let fails = |less: Training| match way.is_for(&less) {
            true => judge(&less, backend, way).err().map(|why| (less, why)),
            false => None,
        };
        match training.smaller().into_iter().find_map(fails) {
            Some(less) => (training, why) = less,
            None => return (training, why),
        }
    }
}
