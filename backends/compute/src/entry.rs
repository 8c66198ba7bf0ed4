//! Registration of a driver.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use polygrad_core::compute::Driver;
use polygrad_core::{AnyDevice, Availability, BackendEntry, DeviceInfo, DeviceSpec, Result};

use crate::{Compute, ComputeDevice, Context};

/// A driver as a backend for a [`Registry`](polygrad_core::Registry), under its own name. `open` makes the driver for a
/// device string's path; the option `fusion=off` is supported for all drivers. The same string opens the same device as
/// long as any part of it is alive.
pub fn entry<D: Driver>(
    description: &'static str,
    open: impl Fn(&DeviceSpec) -> Result<D> + Send + Sync + 'static,
    devices: impl Fn() -> Vec<DeviceInfo> + Send + Sync + 'static,
) -> BackendEntry {
    let opened: Mutex<HashMap<(String, bool), Weak<Context>>> = Mutex::default();
    BackendEntry::new(D::NAME, description, move |spec| {
        let fuses = fuses(spec)?;
        let driver = open(&spec.clone().without_option("fusion"))?;
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (driver.name().to_owned(), fuses);
        if let Some(context) = opened.get(&key).and_then(Weak::upgrade) {
            return Ok(AnyDevice::new::<Compute<D>>(ComputeDevice::of(&context)));
        }
        let device = ComputeDevice::over(Box::new(driver), fuses)?;
        opened.insert(key, Arc::downgrade(&device.0));
        Ok(AnyDevice::new::<Compute<D>>(device))
    })
    .with_options("fusion=off: each op is run by itself")
    .with_probe(move || {
        let found = devices();
        if found.is_empty() {
            return vec![DeviceInfo {
                spec: D::NAME.to_owned(),
                description: description.to_owned(),
                availability: Availability::Available,
            }];
        }
        found
    })
}

fn fuses(spec: &DeviceSpec) -> Result<bool> {
    match spec.option("fusion") {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(spec
            .malformed(format!("fusion={other:?} means nothing"))
            .with_hint("write fusion=on or fusion=off")),
    }
}
