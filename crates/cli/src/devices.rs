//! `polygrad devices`: what there is to compute with.

use polygrad::Device;
use polygrad::backend::{Availability, BackendEntry, Candidate, DeviceInfo, Registry};

use crate::args::Devices;
use crate::failure::Result;
use crate::outcome::Outcome;
use crate::progress::say;

/// Lists every backend that the registry knows with its devices, and for what is missing the reason; or what `auto`
/// thinks of each.
///
/// # Errors
/// When what is to be explained is not a form of `auto`. What fails otherwise is part of the list.
pub(crate) fn command(args: &Devices) -> Result<Outcome> {
    if let Some(device) = &args.explain {
        let mut chosen = false;
        for candidate in Registry::global().explain(device)? {
            say(&verdict(&candidate, chosen));
            if candidate.passed_over.is_some() {
                continue;
            }
            chosen = true;
            let backend = candidate.spec.split(':').next();
            let entries = Registry::global().entries();
            if let Some(entry) = entries.iter().find(|entry| Some(entry.name()) == backend) {
                options(entry);
            }
        }
        return Ok(Outcome::Done);
    }
    for entry in Registry::global().entries() {
        say(&format!("{}: {}", entry.name(), entry.description()));
        options(&entry);
        for device in entry.devices() {
            say(&line(&device));
        }
    }
    Ok(Outcome::Done)
}

/// What can be asked for in the backend's device strings, if anything can.
fn options(entry: &BackendEntry) {
    if !entry.options().is_empty() {
        say(&format!("  options: {}", entry.options()));
    }
}

fn verdict(candidate: &Candidate, chosen: bool) -> String {
    let Candidate { spec, passed_over } = candidate;
    match passed_over {
        Some(reason) => format!("{spec}: passed over: {reason}"),
        None if chosen => format!("{spec}: would do, but comes later"),
        None => format!("{spec}: chosen"),
    }
}

fn line(device: &DeviceInfo) -> String {
    let DeviceInfo {
        spec,
        description,
        availability,
    } = device;
    if let Availability::Unavailable(reason) = availability {
        return format!("  not available: {reason}");
    }
    match Device::new(spec) {
        Err(error) => format!("  {spec}  cannot be opened: {error}"),
        Ok(opened) => {
            let dtypes: Vec<&str> = opened.capabilities().dtypes.iter().map(|dtype| dtype.name()).collect();
            format!("  {spec}  {description}\n    dtypes: {}", dtypes.join(", "))
        }
    }
}
