//! `polygrad check`: runs the conformance suite on a backend.

use std::fs;
use std::path::Path;

use clap::ValueEnum;
use polygrad::Device;
use polygrad::backend::{Availability, Registry};
use polygrad_conformance::{Options, Report, Timing, support_page};
use polygrad_console::backend;
use polygrad_console::failure::{Failure, Result};
use polygrad_console::outcome::Outcome;
use polygrad_console::progress::say;

use super::args::{self, Check};
use super::{graphs, peers, programs, trainings};

/// The path of the table of ops.
const PAGE: &str = "docs/ops.md";

/// Runs the chosen checks on the backend and prints the results.
///
/// # Errors
/// An option that the mode does not have, a backend that cannot be opened, vectors that cannot be read, an unknown op
/// or case, a file that cannot be written; and cases that fail.
pub(crate) fn command(args: &Check) -> Result<Outcome> {
    if let Some(option) = args.misplaced() {
        let mode = args.mode.to_possible_value();
        let mode = mode.as_ref().map_or("", |value| value.get_name());
        return Err(
            Failure::new(format!("{option} is not for --mode {mode}")).fix("leave it out, or give another --mode")
        );
    }
    if args.serve {
        peers::serve(std::io::stdin().lock(), std::io::stdout().lock())?;
        return Ok(Outcome::Done);
    }
    let device = backend::open(&args.backend, None)?;
    match args.mode {
        args::Mode::Test => test(&device, args, polygrad_conformance::Mode::Test),
        args::Mode::Grad => test(&device, args, polygrad_conformance::Mode::Grad),
        args::Mode::Perf => perf(&device, args),
        args::Mode::Support => support(device),
        args::Mode::Programs => programs::command(&device, args),
        args::Mode::Graphs => graphs(&device, args),
        args::Mode::Trainings => trainings(args),
    }
}

fn options(args: &Check, mode: polygrad_conformance::Mode) -> Options {
    Options {
        mode,
        op: args.op.clone(),
        case: args.case.clone(),
        vectors: args.vectors.clone(),
        sample: args.sample,
        ..Options::default()
    }
}

fn test(device: &Device, args: &Check, mode: polygrad_conformance::Mode) -> Result<Outcome> {
    let report = polygrad_conformance::run(device, &options(args, mode))?;
    if let Some(path) = &args.json {
        write(path, &report.to_json())?;
    }
    say(report.to_string().trim_end());
    verdict(&report)
}

fn verdict(report: &Report) -> Result<Outcome> {
    let complaints = report.complaints();
    if complaints.is_empty() {
        return Ok(Outcome::Done);
    }
    let (wrong, all) = (complaints.len(), report.records.len());
    Err(
        Failure::new(format!("{wrong} of {all} cases fail on {}", report.device))
            .fix("run one alone with --case NAME; the name is what stands after FAIL"),
    )
}

fn graphs(device: &Device, args: &Check) -> Result<Outcome> {
    let seed = args.seed.unwrap_or(0);
    let (first, count) = (args.first.unwrap_or(0), args.count.unwrap_or(500));
    let drawn = graphs::Drawn { seed, first, count };
    let peers = peers::Peers::new()?;
    let bench = graphs::Bench { device, peers: &peers };
    let report = graphs::check(bench, &drawn, args.cases.as_deref())?;
    let graphs::Report {
        graphs,
        nodes,
        beside,
        faults,
        crashes,
    } = &report;
    say(&format!(
        "{graphs} graphs of {nodes} nodes, {beside} beside ONNX Runtime, which crashed {crashes} times: {} differences",
        faults.len()
    ));
    if faults.is_empty() {
        return Ok(Outcome::Done);
    }
    let again = format!("see one again with --mode graphs --seed {seed} --count 1 --first NUMBER");
    Err(Failure::new(format!("{} of {graphs} graphs differ", faults.len())).fix(again))
}

fn trainings(args: &Check) -> Result<Outcome> {
    let seed = args.seed.unwrap_or(0);
    let (first, count) = (args.first.unwrap_or(0), args.count.unwrap_or(500));
    let report = trainings::check(&args.backend, seed, first, count)?;
    say(&report.to_string());
    if report.faults.is_empty() {
        return Ok(Outcome::Done);
    }
    let again = format!("see one again with --mode trainings --seed {seed} --count 1 --first NUMBER");
    Err(Failure::new(format!("{} runs of {count} trainings differ", report.faults.len())).fix(again))
}

fn perf(device: &Device, args: &Check) -> Result<Outcome> {
    let timings = polygrad_conformance::perf(device, &options(args, polygrad_conformance::Mode::Test))?;
    if let Some(path) = &args.json {
        write(path, &Timing::to_json(&timings))?;
    }
    for timing in timings {
        say(&timing.to_string());
    }
    Ok(Outcome::Done)
}

/// Writes the page for this backend, for all registered ones that can be opened, and for the reference.
fn support(device: Device) -> Result<Outcome> {
    // Before the cases run, which takes a minute in a debug build.
    fs::metadata("docs").map_err(|error| Failure::io("write", Path::new(PAGE), &error))?;
    let mut devices = vec![device];
    for entry in Registry::global().entries() {
        let mut there = entry.devices().into_iter();
        let first = there.find(|device| matches!(device.availability, Availability::Available));
        devices.extend(first.and_then(|info| Device::new(&info.spec).ok()));
    }
    devices.push(polygrad_conformance::reference());
    let mut names = std::collections::BTreeSet::new();
    devices.retain(|device| names.insert(device.backend_name()));
    write(Path::new(PAGE), &support_page(&devices)?)?;
    say(&format!("written: {PAGE}"));
    Ok(Outcome::Done)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Failure::io("write", path, &error))
}
