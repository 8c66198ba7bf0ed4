//! `polygrad devices`: the available backends and devices.

use polygrad::Device;
use polygrad::backend::{Availability, BackendEntry, Candidate, DeviceInfo, Registry};

use crate::args::Devices;
use crate::failure::Result;
use crate::outcome::Outcome;
use crate::progress::say;

/// Lists every backend of the registry with its devices, and the reason why any is missing; or how `auto` rates each.
///
/// # Errors
/// If the device to explain is not a form of `auto`. Other failures are part of the list.
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

/// Prints the options of the backend's device strings, if there are any.
fn options(entry: &BackendEntry) {
    if !entry.options().is_empty() {
        say(&format!("  options: {}", entry.options()));
    }
}

fn verdict(candidate: &Candidate, chosen: bool) -> String {
    let Candidate { spec, passed_over } = candidate;
    match passed_over {
        Some(reason) => format!("{spec}: passed over: {reason}"),
        None if chosen => format!("{spec}: usable, but of lower priority"),
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
