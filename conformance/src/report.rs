//! The results of a run.

use std::collections::BTreeMap;
use std::fmt;

use polygrad_tensor::DType;
use serde_json::json;

use crate::case::{Case, Outcome, Source, Status};

/// The result of one case.
#[derive(Clone, Debug)]
pub struct Record {
    /// The case's name.
    pub name: String,
    /// Its op.
    pub op: String,
    /// Where it comes from.
    pub source: Source,
    /// The dtype in which it ran.
    pub dtype: DType,
    /// Why it is known not to pass.
    pub known: Option<&'static str>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Record {
    /// The record of a case.
    pub fn new(case: &Case, outcome: Outcome) -> Self {
        Self {
            name: case.name().to_owned(),
            op: case.op().to_owned(),
            source: case.source(),
            dtype: case.dtype(),
            known: case.known(),
            outcome,
        }
    }

    /// The reason why there is no answer, if there is none.
    pub fn unsupported(&self) -> Option<&str> {
        self.outcome.sides().find_map(|(_, status)| match status {
            Status::Unsupported(reason) => Some(reason.as_str()),
            _ => None,
        })
    }

    /// A complaint about the backend: an unknown failure, or a known one that passes.
    pub fn complaint(&self) -> Option<String> {
        let name = format!("{}@{}", self.name, self.dtype);
        if let Some(reason) = self.known {
            let passes = self.outcome.sides().all(|(_, status)| status.passes());
            return passes.then(|| format!("{name}: passes, though it is listed as one that does not: {reason}"));
        }
        let failed = self.outcome.sides().filter_map(|(side, status)| match status {
            Status::Fail(reason) => Some(format!("{name} ({side}): {reason}")),
            _ => None,
        });
        failed.reduce(|all, next| format!("{all}\n{next}"))
    }
}

/// Counts of the results of cases' sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Correct answers.
    pub pass: usize,
    /// Wrong answers, including known ones.
    pub fail: usize,
    /// No answer, with a reason.
    pub unsupported: usize,
}

impl Counts {
    fn add(&mut self, status: &Status) {
        match status {
            Status::Pass => self.pass += 1,
            Status::Fail(_) => self.fail += 1,
            Status::Unsupported(_) => self.unsupported += 1,
        }
    }
}

/// The results of a run, case by case. Its [`Display`](fmt::Display) form is the table of all ops and the failures.
#[derive(Clone, Debug)]
pub struct Report {
    /// The device under test.
    pub device: String,
    /// Each case, in the order in which it ran.
    pub records: Vec<Record>,
}

impl Report {
    /// A report on the results of a device.
    pub fn new(device: String, records: Vec<Record>) -> Self {
        Self { device, records }
    }

    /// All complaints about the backend: see [`Record::complaint`].
    pub fn complaints(&self) -> Vec<String> {
        self.records.iter().filter_map(Record::complaint).collect()
    }

    /// Forward and gradient counts of all cases.
    pub fn totals(&self) -> [Counts; 2] {
        let mut counts = [Counts::default(); 2];
        for record in &self.records {
            tally(&mut counts, &record.outcome);
        }
        counts
    }

    /// Forward and gradient counts of each op.
    pub fn by_op(&self) -> BTreeMap<&str, [Counts; 2]> {
        let mut ops: BTreeMap<&str, [Counts; 2]> = BTreeMap::new();
        for record in &self.records {
            tally(ops.entry(&record.op).or_default(), &record.outcome);
        }
        ops
    }

    /// Every case as JSON: `{"device": …, "cases": [{"case", "op", "source", "dtype", "known", "forward",
    /// "gradient"}]}`, where forward and gradient are null if the case does not ask for them, and else
    /// `{"status": "pass" | "fail" | "unsupported", "reason"}`.
    pub fn to_json(&self) -> String {
        let status = |status: &Option<Status>| {
            let name = match status.as_ref()? {
                Status::Pass => "pass",
                Status::Fail(_) => "fail",
                Status::Unsupported(_) => "unsupported",
            };
            Some(json!({ "status": name, "reason": status.as_ref()?.reason() }))
        };
        let cases: Vec<_> = self
            .records
            .iter()
            .map(|record| {
                json!({
                    "case": record.name,
                    "op": record.op,
                    "source": record.source.name(),
                    "dtype": record.dtype.name(),
                    "known": record.known,
                    "forward": status(&record.outcome.forward),
                    "gradient": status(&record.outcome.gradient),
                })
            })
            .collect();
        format!("{:#}\n", json!({ "device": self.device, "cases": cases }))
    }
}

fn tally(counts: &mut [Counts; 2], outcome: &Outcome) {
    let sides = [&outcome.forward, &outcome.gradient];
    for (counts, status) in counts.iter_mut().zip(sides) {
        if let Some(status) = status {
            counts.add(status);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops = self.by_op();
        let width = ops.keys().map(|op| op.len()).max().unwrap_or(0).max(5);
        let row = |f: &mut fmt::Formatter<'_>, name: &str, [forward, gradient]: [Counts; 2]| {
            writeln!(
                f,
                "{name:width$}  {:>6} {:>6} {:>6}  {:>6} {:>6} {:>6}",
                forward.pass, forward.fail, forward.unsupported, gradient.pass, gradient.fail, gradient.unsupported
            )
        };
        writeln!(f, "{:width$}  forward               gradient", self.device)?;
        writeln!(f, "{:width$}    pass   fail unsup.    pass   fail unsup.", "")?;
        for (op, counts) in &ops {
            row(f, op, *counts)?;
        }
        row(f, "total", self.totals())?;
        let mut reasons: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for record in &self.records {
            for (_, status) in record.outcome.sides() {
                if let Status::Unsupported(reason) = status {
                    let (count, _) = reasons.entry(reason).or_insert((0, &record.name));
                    *count += 1;
                }
            }
        }
        for (reason, (count, first)) in reasons {
            writeln!(f, "unsupported, {count} such as {first}: {reason}")?;
        }
        for record in self.records.iter().filter(|record| record.complaint().is_none()) {
            let fails = record
                .outcome
                .sides()
                .any(|(_, status)| matches!(status, Status::Fail(_)));
            if let (true, Some(known)) = (fails, record.known) {
                writeln!(f, "known: {}@{}: {known}", record.name, record.dtype)?;
            }
        }
        for complaint in self.complaints() {
            writeln!(f, "FAIL {complaint}")?;
        }
        Ok(())
    }
}
