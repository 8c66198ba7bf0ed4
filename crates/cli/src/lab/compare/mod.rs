//! `polygrad compare`: the same work on every backend, side by side.

mod chart;
mod measure;
pub(crate) mod table;
pub(crate) mod work;

use clap::ValueEnum;
use polygrad::Device;
use polygrad::backend::{Availability, Registry};

use crate::Outcome;
use crate::failure::{Failure, Result, Shown};
use crate::lab::args::Compare;
use crate::progress::{note, say};
use crate::run::atomic::AtomicFile;
use measure::Series;
use work::Work;

/// Measures, prints a table for each kind of work, and draws the chart.
///
/// # Errors
/// A backend that cannot be opened, and a file that cannot be written. Work that fails on a backend is part of the table.
pub(crate) fn command(args: &Compare) -> Result<Outcome> {
    let devices = open(&args.backend)?;
    let works = match args.op.as_slice() {
        [] => Work::value_variants(),
        chosen => chosen,
    };
    // A file that cannot be written is found out before the work; until it is whole, the old one stays.
    let plot = AtomicFile::create(&args.plot)?;
    let json = args.json.as_deref().map(AtomicFile::create).transpose()?;
    let mut all = Vec::new();
    for &work in works {
        note(&format!("measuring {}", work.name()));
        let series = Series::measure(work, &devices);
        say(&table::table(&series));
        all.push(series);
    }
    let chart = chart::draw(&all).map_err(|e| Failure::new(format!("cannot encode {}: {e}", args.plot.shown())))?;
    plot.finish(&chart)?;
    if let Some(file) = json {
        let entries: Vec<serde_json::Value> = all.iter().flat_map(Series::to_json).collect();
        file.finish(format!("{:#}\n", serde_json::Value::from(entries)).as_bytes())?;
    }
    say(&format!("written: {}", args.plot.shown()));
    Ok(Outcome::Done)
}

/// The devices asked for; without any, the first of each backend that is there.
fn open(asked: &[String]) -> Result<Vec<(String, Device)>> {
    let opened = |spec: String| -> Result<(String, Device)> {
        let device = Device::new(&spec)?;
        Ok((spec, device))
    };
    if !asked.is_empty() {
        return asked.iter().cloned().map(opened).collect();
    }
    let mut devices = Vec::new();
    for entry in Registry::global().entries() {
        let mut there = entry.devices().into_iter();
        if let Some(device) = there.find(|device| device.availability == Availability::Available) {
            devices.push(opened(device.spec)?);
        }
    }
    Ok(devices)
}
