//! `polygrad devices`: what there is to compute with.

use polygrad::Device;
use polygrad::backend::{Availability, DeviceInfo, Registry};

use crate::Outcome;
use crate::failure::Result;
use crate::progress::say;

/// Lists every backend that the registry knows with its devices, and for what is missing the reason.
///
/// # Errors
/// None; what fails is part of the list.
pub(crate) fn command() -> Result<Outcome> {
    for entry in Registry::global().entries() {
        say(&format!("{}: {}", entry.name(), entry.description()));
        for device in entry.devices() {
            say(&line(&device));
        }
    }
    Ok(Outcome::Done)
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
