//! `polygrad bench`: the workloads of `polygrad-workloads`, timed.

mod contestant;
mod ours;
mod report;
mod rounds;
mod table;

use std::io::Write;

use polygrad_workloads::{Case, cases, select};

use crate::Outcome;
use crate::args::Bench;
use crate::backend;
use crate::failure::{Failure, Result};
use crate::progress::say;
use crate::run::atomic::AtomicFile;
use contestant::Contestant;
use ours::Ours;
use report::Report;

/// Times what is asked for, prints a line for each case as soon as it is done, and writes the figures.
///
/// # Errors
/// A workload or backend that is not there, and a file that cannot be written. A case that fails is part of the report.
pub(crate) fn command(args: &Bench) -> Result<Outcome> {
    let chosen = chosen(&args.workloads)?;
    let (spec, threads) = device(args)?;
    let mut ours = Ours::open(&spec)?;
    // A file that cannot be written is found out before the work; until it is whole, the old one stays.
    let json = args.json.as_deref().map(AtomicFile::create).transpose()?;
    let mut report = Report::new(&spec, threads, args.seconds);
    say(&table::head(&report));
    for case in chosen {
        let mut contestants: Vec<&mut dyn Contestant> = vec![&mut ours];
        let outcomes = rounds::measure(&case.name(), &mut contestants, args.seconds);
        say(&table::rows(&case, &outcomes));
        report.add(case, outcomes);
    }
    if let (Some(mut file), Some(path)) = (json, &args.json) {
        file.write_all(format!("{:#}\n", report.to_json()).as_bytes())
            .map_err(|error| Failure::io("write", path, &error))?;
        file.commit()?;
    }
    Ok(Outcome::Done)
}

/// The cases that are asked for, all without any.
fn chosen(names: &[String]) -> Result<Vec<Case>> {
    if names.is_empty() {
        return Ok(cases());
    }
    let mut chosen = Vec::new();
    for name in names {
        chosen.extend(select(name)?);
    }
    Ok(chosen)
}

/// The device string, and the number of threads that peers get: one, unless something else is asked for.
fn device(args: &Bench) -> Result<(String, usize)> {
    let asked = backend::spec(&args.backend, args.threads)?;
    let threads = asked.option("threads").and_then(|text| text.parse().ok());
    match threads {
        Some(threads) => Ok((asked.to_string(), threads)),
        None if asked.backend() == "cpu" => Ok((backend::spec(&args.backend, Some(1))?.to_string(), 1)),
        None => Ok((asked.to_string(), 1)),
    }
}
