//! `polygrad profile`: the time of steps by op, shape and module, as tables and as a trace.

pub(crate) mod args;
pub(crate) mod subject;
mod trace;

use std::time::Instant;

use polygrad::Device;
use polygrad::nn::profile::{Allocator, Profile as Measured, Profiler, Span};
use polygrad_console::atomic::AtomicFile;
use polygrad_console::backend;
use polygrad_console::failure::Result;
use polygrad_console::outcome::Outcome;
use polygrad_console::progress::say;

use crate::bench::{self, select};
use args::{How, Profile, What};
use subject::{Subject, Training};

/// Takes steps, first normally and then with a profiled device, prints tables of the latter, and writes the trace.
///
/// # Errors
/// Errors of options, data and devices, and a file that cannot be written.
pub(crate) fn command<T: Training>(args: &Profile<T>) -> Result<Outcome> {
    match &args.what {
        What::Train(args) => {
            let (subject, device) = args.train.subject()?;
            profile(&*subject, &device, &args.how)
        }
        What::Bench(args) => {
            let (device, _) = bench::device(&args.backend, args.threads, 1)?;
            let case = select::one(&args.case, "a profile")?;
            say(&format!("{} on {device}", case.name()));
            profile(&case, &backend::open(&device, None)?, &args.how)
        }
    }
}

fn profile(subject: &dyn Subject, device: &Device, how: &How) -> Result<Outcome> {
    // A file that cannot be written is detected before the work; the old file stays until the new one is complete.
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
        // Pending work of the device is part of the step.
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

/// The steps without profiling.
fn plain(subject: &dyn Subject, device: &Device, how: &How) -> Result<Measured> {
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

/// Runs `f` and meanwhile times the CPU's buffer pool; `None` if the device does not use it.
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
