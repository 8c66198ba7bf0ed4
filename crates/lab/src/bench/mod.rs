//! `polygrad bench`: times the workloads of `polygrad-workloads`, optionally beside other libraries.

mod chart;
mod contestant;
mod limits;
mod memory;
mod native;
mod peer;
pub(crate) mod report;
mod rounds;
pub(crate) mod select;
mod serve;
pub(crate) mod table;

use std::time::Duration;

use polygrad::backend::{Availability, Registry};
use polygrad::communicator;
use polygrad_console::atomic::AtomicFile;
use polygrad_console::backend;
use polygrad_console::failure::{Failure, Result, Shown};
use polygrad_console::outcome::Outcome;
use polygrad_console::progress::say;

use crate::args::Bench;
use contestant::Contestant;
use limits::Limits;
use native::{Mode, Native};
use peer::Peer;
use report::Report;
use rounds::Pace;
use select::Chosen;

/// Times the requested cases, prints lines for each as soon as it is done, and writes the results.
///
/// # Errors
/// An unknown workload, backend or peer, or a file that cannot be written. A case that fails is part of the report.
pub(crate) fn command(args: &Bench) -> Result<Outcome> {
    let chosen = select::chosen(&args.workloads)?;
    let backends = backends(&args.backend);
    let Some((first, others)) = backends.split_first() else {
        return Err(Failure::new("no backend is there").fix("`polygrad devices` says why of each"));
    };
    // Beside backends that take all cores, the native one does, too.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let unasked = if others.is_empty() { 1 } else { cores };
    let (device, threads) = device(first, args.threads, unasked)?;
    if args.plot.is_some() && others.is_empty() && args.against.is_empty() && !args.captured {
        return Err(
            Failure::new("there is nothing to draw: a chart shows how others compare with the first")
                .fix("give --backend several times, or peers with --against"),
        );
    }
    let way = if args.captured { Mode::Captured } else { Mode::Written };
    if let Some(engine) = &args.parallel {
        let group = communicator::open(engine)?;
        let mut native = Native::joined(&device, &group)?;
        let questions = serve::shared(&*group, std::io::stdin().lines());
        match group.rank() {
            0 => serve::serve(&mut native, questions, std::io::stdout().lock())?,
            _ => serve::serve(&mut native, questions, std::io::sink())?,
        }
        return Ok(Outcome::Done);
    }
    let mut native = Native::open(&device, way)?;
    if args.serve {
        serve::serve(&mut native, std::io::stdin().lines(), std::io::stdout().lock())?;
        return Ok(Outcome::Done);
    }
    crate::group::end_on_interrupt()?;
    let patience = Duration::from_secs_f64(args.patience);
    let written = args.captured.then(|| Native::open(&device, Mode::WrittenToo));
    let mut written = written.transpose()?;
    let opened = others.iter().map(|spec| Ok(Native::open(spec, way)?.named(spec)));
    let mut others: Vec<Native> = opened.collect::<Result<_>>()?;
    let mut peers = Vec::new();
    for name in &args.against {
        peers.push(Peer::start(name, threads, patience)?);
    }
    // A file that cannot be written is detected before the work; the old file stays until the new one is complete.
    let json = args.json.as_deref().map(AtomicFile::create).transpose()?;
    let plot = args.plot.as_deref().map(AtomicFile::create).transpose()?;
    let mut report = Report::new(&device, threads, args.seconds);
    report.limits = Limits::of(&device)?;
    say(&table::head(&report));
    for chosen in chosen {
        match chosen {
            Chosen::Timed(case) => {
                let mut contestants: Vec<&mut dyn Contestant> = vec![&mut native];
                // A case that is no model is never captured, so it would be timed twice.
                let written = written.as_mut().filter(|_| case.is_model());
                contestants.extend(written.map(|written| written as &mut dyn Contestant));
                contestants.extend(others.iter_mut().map(|other| other as &mut dyn Contestant));
                contestants.extend(peers.iter_mut().map(|peer| peer as &mut dyn Contestant));
                let outcomes = rounds::measure(&case.name(), &mut contestants, Pace::new(threads), args.seconds);
                say(&table::times(&case, &outcomes, report.limits.as_ref()));
                report.add_times(case, outcomes);
            }
            Chosen::Memory(case) => {
                let peaks = memory::measure(case, &device, &args.against, threads, patience)?;
                say(&table::peaks(case, &peaks));
                report.add_peaks(case, peaks);
            }
        }
    }
    if let Some(mut file) = json {
        file.append(format!("{:#}\n", report.to_json()).as_bytes())?;
        file.commit()?;
    }
    if let (Some(mut file), Some(path)) = (plot, &args.plot) {
        let chart = chart::draw(report.ratios());
        let chart = chart.map_err(|e| Failure::new(format!("cannot encode {}: {e}", path.shown())))?;
        file.append(&chart)?;
        file.commit()?;
    }
    Ok(Outcome::Done)
}

/// The device strings, with `all` replaced by the first device of each available backend, the native CPU's first.
fn backends(asked: &[String]) -> Vec<String> {
    let there = || {
        let mut there: Vec<String> = Registry::global()
            .entries()
            .iter()
            .filter_map(|entry| {
                let mut devices = entry.devices().into_iter();
                devices.find(|device| device.availability == Availability::Available)
            })
            .map(|device| device.spec)
            .collect();
        there.sort_by_key(|spec| spec != "cpu");
        there
    };
    asked
        .iter()
        .flat_map(|spec| if spec == "all" { there() } else { vec![spec.clone()] })
        .collect()
}

/// The device string, and the number of threads for peers: `unasked`, unless a number is given.
///
/// # Errors
/// An invalid string, or two different numbers of threads.
pub(crate) fn device(backend: &str, threads: Option<usize>, unasked: usize) -> Result<(String, usize)> {
    let asked = backend::spec(backend, threads)?;
    let threads = asked.option("threads").and_then(|text| text.parse().ok());
    match threads {
        Some(threads) => Ok((asked.to_string(), threads)),
        None if asked.backend() == "cpu" => Ok((backend::spec(backend, Some(unasked))?.to_string(), unasked)),
        None => Ok((asked.to_string(), unasked)),
    }
}
