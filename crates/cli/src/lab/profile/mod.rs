//! `polygrad profile`: where the time of steps goes, by op, shape and module, as tables and as a trace.

pub(crate) mod args;
mod subject;
mod trace;

use std::time::Instant;

use polygrad::Device;
use polygrad::nn::profile::{Allocator, Profile as Measured, Profiler, Span};

use crate::failure::{Failure, Result};
use crate::images::config::Config;
use crate::kind::Kind;
use crate::lab::bench::{self, select};
use crate::outcome::Outcome;
use crate::progress::say;
use crate::run::atomic::AtomicFile;
use crate::{backend, images, train};
use args::{How, Profile, Training, What};
use subject::Subject;

/// Takes steps, first as they are and then with a watched device, prints tables of the latter, and writes the trace.
///
/// # Errors
/// Everything that options, data and devices can do wrong, and a file that cannot be written.
pub(crate) fn command(args: &Profile) -> Result<Outcome> {
    match &args.what {
        What::Train(args) => {
            refuse_runs(args)?;
            let (config, device, data) = train::prepare::<Config>(&args.train)?;
            images::about(&config, &data, &device).iter().for_each(|line| say(line));
            let config = Box::new(config);
            profile(&Subject::Training { config, data }, &device, &args.how)
        }
        What::Bench(args) => {
            let (device, _) = bench::device(&args.backend, args.threads, 1)?;
            let case = select::one(&args.case, "a profile")?;
            say(&format!("{} on {device}", case.name()));
            profile(&Subject::Case(case), &backend::open(&device, None)?, &args.how)
        }
    }
}

fn refuse_runs(args: &Training) -> Result<()> {
    let kind = args
        .train
        .every
        .dataset
        .as_deref()
        .map_or(Kind::Images, Kind::of_dataset);
    if kind != Kind::Images {
        return Err(Failure::new(format!(
            "a profile of training is of images, and this is {}",
            kind.name()
        ))
        .fix("name a data set of images, such as fashion-mnist, or a case of `polygrad profile bench`"));
    }
    for (option, given) in [("--resume", &args.train.every.resume), ("--out", &args.train.every.out)] {
        if given.is_some() {
            return Err(Failure::new(format!("{option} names a run, and a profile leaves none"))
                .fix(format!("leave {option} out; --trace names the file to write")));
        }
    }
    if args.train.every.tui {
        return Err(Failure::new("--tui shows a run, and a profile is none").fix("leave --tui out"));
    }
    Ok(())
}

fn profile(subject: &Subject, device: &Device, how: &How) -> Result<Outcome> {
    // A file that cannot be written is found out before the work; until it is whole, the old one stays.
    let file = how.trace.as_deref().map(AtomicFile::create).transpose()?;
    let plain = plain(subject, device, how)?;

    let mut work = subject.work(device)?;
    let mut profiler = Profiler::new().wait(!how.no_sync);
    if let Some(model) = &work.model {
        profiler = profiler.model(&**model);
    }
    repeat(how.warmup, &mut work.step)?;
    let mut step = || {
        (work.step)()?;
        // What a device still has to do is part of the step.
        if how.no_sync { Ok(device.synchronize()?) } else { Ok(()) }
    };
    let allocator = time_pool(|| repeat(how.steps, || profiler.step(&mut step)))?;
    let profile = profiler.finish();

    say(&format!(
        "{} steps, at the median {}; with nobody watching {}\n",
        how.steps,
        profile.median(),
        plain.median()
    ));
    say(&profile.ops(how.rows));
    say("");
    say(&profile.modules(how.rows));
    say("");
    say(&profile.totals(allocator));
    if let Some(warning) = profile.copies() {
        say(&format!("\n{warning}"));
    }
    if let Some(file) = file {
        trace::trace(&subject.title(), &profile).write(file)?;
    }
    Ok(Outcome::Done)
}

/// The steps as they are when nobody watches.
fn plain(subject: &Subject, device: &Device, how: &How) -> Result<Measured> {
    let mut work = subject.work(device)?;
    repeat(how.warmup, &mut work.step)?;
    device.synchronize()?;
    let origin = Instant::now();
    let mut plain = Measured::default();
    repeat(how.steps, || {
        let begin = origin.elapsed();
        (work.step)()?;
        device.synchronize()?;
        let end = origin.elapsed();
        plain.steps.push(Span { begin, end });
        Ok(())
    })?;
    Ok(plain)
}

fn repeat(times: usize, mut step: impl FnMut() -> Result<()>) -> Result<()> {
    (0..times).try_for_each(|_| step())
}

/// Runs `f` and times the CPU's buffer pool meanwhile; nothing where the device does not use it.
#[cfg(feature = "cpu")]
fn time_pool(f: impl FnOnce() -> Result<()>) -> Result<Option<Allocator>> {
    let (outcome, pool) = polygrad::cpu::memory::time_pool(f);
    outcome?;
    let allocator = Allocator {
        calls: pool.allocations + pool.frees,
        bytes: pool.bytes,
        time: pool.time,
    };
    Ok(Some(allocator).filter(|allocator| allocator.calls > 0))
}

#[cfg(not(feature = "cpu"))]
fn time_pool(f: impl FnOnce() -> Result<()>) -> Result<Option<Allocator>> {
    f().map(|()| None)
}
