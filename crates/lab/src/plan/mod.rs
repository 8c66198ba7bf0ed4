//! `polygrad plan`: predicts the time, communication and memory of a training step on many ranks, from steps of one.

pub(super) mod args;
mod group;
mod table;
mod trace;
mod trial;

use std::sync::Arc;
use std::time::Duration;

use polygrad::Device;
use polygrad::communicator::{self, Communicator, Threads};
use polygrad::train::{Link, PlanConfig};
use polygrad_console::atomic::AtomicFile;
use polygrad_console::backend;
use polygrad_console::failure::Result;
use polygrad_console::outcome::Outcome;
use polygrad_console::progress::{say, speak_as};
use polygrad_console::team::Team;
use polygrad_workloads::Case;

use super::bench::{self, report, select};
use args::Plan;
use trial::Trial;

/// The variables in which launchers give the number of processes on this machine: torchrun, Open MPI, MPICH.
const LOCAL_SIZES: [&str; 3] = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// Measures steps of one rank and predicts those of many; or, with several processes, checks the prediction.
///
/// # Errors
/// An unknown case, or one that does not train; errors of devices and groups.
pub(crate) fn command(args: &Plan) -> Result<Outcome> {
    let case = select::one(&args.case, "a plan")?;
    let (spec, threads) = bench::device(&args.backend, args.threads, 1)?;
    let device = backend::open(&spec, None)?;
    match &args.parallel {
        Some(engine) => test(args, &case, &device, threads, &communicator::open(engine)?)?,
        None => plan(args, &case, &device, threads)?,
    }
    say(&format!("\non {spec}, {}, {}", report::machine(), report::today()));
    Ok(Outcome::Done)
}

/// The group of a single rank.
fn alone() -> Result<Arc<dyn Communicator>> {
    Ok(Arc::new(Threads::group(1, Duration::from_secs(60))?.remove(0)))
}

/// Whether a rank has a core left for communication.
fn overlaps(ranks_per_host: usize, threads: usize) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    ranks_per_host.saturating_mul(threads) < cores
}

fn plan(args: &Plan, case: &Case, device: &Device, threads: usize) -> Result<()> {
    let mut trial = Trial::new(case, device, &alone()?)?;
    let times = (0..args.steps).map(|_| Ok(trial.step()?.times()));
    let times = times.collect::<Result<Vec<_>>>()?;
    let profile = trial.profile(&group::means(&times)?);
    say(&table::profile(&case.name(), args.steps, &profile));
    let link = Link {
        latency: args.latency,
        bandwidth: args.bandwidth,
    };
    let ranks_per_host = args.ranks_per_host.unwrap_or(1);
    let overlaps = overlaps(ranks_per_host, threads);
    say(&table::assumed(&link, ranks_per_host, threads, overlaps));
    say(&table::head());
    let config = |ranks| {
        PlanConfig::new(ranks)
            .overlaps(overlaps)
            .shards_optimizer(args.shard_optimizer)
    };
    let one = profile.predict(&link, PlanConfig::new(1))?;
    for &ranks in &args.ranks {
        say(&table::predicted(ranks, &profile.predict(&link, config(ranks))?, &one));
    }
    Ok(())
}

fn test(args: &Plan, case: &Case, device: &Device, threads: usize, group: &Arc<dyn Communicator>) -> Result<()> {
    speak_as(group.rank());
    let local = LOCAL_SIZES
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok());
    let ranks_per_host = args.ranks_per_host.or(local).unwrap_or(group.size());
    // All ranks detect a file that cannot be written before the work.
    let mut file = None;
    Team::of(Some(Arc::clone(group))).share(|| {
        file = args.trace.as_deref().map(AtomicFile::create).transpose()?;
        Ok(())
    })?;
    let mut lone = Trial::new(case, device, &alone()?)?;
    let mut together = Trial::new(case, device, group)?;
    let measured = group::measure(group, &mut lone, &mut together, args.steps)?;
    let profile = lone.profile(&measured.alone);
    say(&table::profile(&case.name(), args.steps, &profile));
    let overlaps = overlaps(ranks_per_host, threads);
    say(&table::measured(&group.name(), &measured.link));
    say(&table::assumed(&measured.link, ranks_per_host, threads, overlaps));
    say(&table::head());
    let one = profile.predict(&measured.link, PlanConfig::new(1))?;
    let ranks = group.size();
    let prediction = profile.predict(&measured.link, PlanConfig::new(ranks).overlaps(overlaps))?;
    say(&table::predicted(ranks, &prediction, &one));
    say(&table::compared(ranks, &prediction, measured.together));
    match file {
        Some(file) => trace::trace(&case.name(), ranks, &measured.steps).write(file),
        None => Ok(()),
    }
}
