//! `polygrad check`: holds a backend to the conformance suite.

use polygrad_conformance::{Options, Report};

use crate::args::Check;
use crate::failure::{Failure, Result};
use crate::progress::say;
use crate::{Outcome, args, backend};

/// Runs the chosen cases on the backend and prints what they found.
///
/// # Errors
/// A backend that cannot be opened, vectors that cannot be read, an unknown op or case, a report that cannot be written; and cases that fail.
pub(crate) fn command(args: &Check) -> Result<Outcome> {
    let device = backend::open(&args.backend, None)?;
    let options = Options {
        mode: args.mode.into(),
        op: args.op.clone(),
        case: args.case.clone(),
        vectors: args.vectors.clone(),
    };
    let report = polygrad_conformance::run(&device, &options)?;
    if let Some(path) = &args.json {
        report.write_json(path)?;
    }
    say(report.to_string().trim_end());
    verdict(&report)
}

fn verdict(report: &Report) -> Result<Outcome> {
    let complaints = report.complaints();
    if complaints.is_empty() {
        return Ok(Outcome::Done);
    }
    let count = format!(
        "{} of {} cases fail on {}",
        complaints.len(),
        report.records.len(),
        report.device
    );
    Err(Failure::new(count).fix("run one alone with --case NAME; the name is what stands after FAIL"))
}

impl From<args::Mode> for polygrad_conformance::Mode {
    fn from(mode: args::Mode) -> Self {
        match mode {
            args::Mode::Test => Self::Test,
            args::Mode::Grad => Self::Grad,
        }
    }
}
