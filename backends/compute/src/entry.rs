//! A driver in the registry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use polygrad_core::compute::{ComputeBackend, Driver};
use polygrad_core::{AnyDevice, Availability, BackendEntry, DeviceInfo, DeviceSpec, Result};

use crate::{Compute, ComputeDevice, Context, Routed};

/// Makes the driver for calls with little work.
pub type HostDriver = fn() -> Box<dyn ComputeBackend>;

/// A driver as a backend for a [`Registry`](polygrad_core::Registry), under its own name. `open` makes the driver of a device string's path;
/// the option `fusion=off` is for all. The same string opens the same device as long as anything of it is alive.
pub fn entry<D: Driver>(
    description: &'static str,
    open: impl Fn(&DeviceSpec) -> Result<D> + Send + Sync + 'static,
    devices: impl Fn() -> Vec<DeviceInfo> + Send + Sync + 'static,
) -> BackendEntry {
    of(description, open, devices, None)
}

/// [`entry`] with one option more: on a device `name:host-below=100000`, calls of less than 100,000 multiply-adds or elements run on the driver
/// that `host` makes, the rest on `D`: [`Routed`].
pub fn entry_with_host<D: Driver>(
    description: &'static str,
    open: impl Fn(&DeviceSpec) -> Result<D> + Send + Sync + 'static,
    devices: impl Fn() -> Vec<DeviceInfo> + Send + Sync + 'static,
    host: HostDriver,
) -> BackendEntry {
    of(description, open, devices, Some(host))
}

fn of<D: Driver>(
    description: &'static str,
    open: impl Fn(&DeviceSpec) -> Result<D> + Send + Sync + 'static,
    devices: impl Fn() -> Vec<DeviceInfo> + Send + Sync + 'static,
    host: Option<HostDriver>,
) -> BackendEntry {
    let opened: Mutex<HashMap<(String, bool), Weak<Context>>> = Mutex::default();
    BackendEntry::new(D::NAME, description, move |spec| {
        let fuses = fuses(spec)?;
        let mut rest = spec.clone().without_option("fusion");
        let mut routed = None;
        if let Some(host) = host {
            routed = host_below(spec)?.map(|below| (host, below));
            rest = rest.without_option("host-below");
        }
        let driver: Box<dyn ComputeBackend> = Box::new(open(&rest)?);
        let (driver, routes) = match routed {
            None => (driver, None),
            Some((host, below)) => {
                let driver = Routed::over(host(), driver, below);
                let routes = driver.routes();
                (Box::new(driver) as Box<dyn ComputeBackend>, Some(routes))
            }
        };
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (driver.name().to_owned(), fuses);
        if let Some(context) = opened.get(&key).and_then(Weak::upgrade) {
            return Ok(AnyDevice::new::<Compute<D>>(ComputeDevice::of(&context)));
        }
        let device = ComputeDevice::over(driver, fuses, routes)?;
        opened.insert(key, Arc::downgrade(&device.0));
        Ok(AnyDevice::new::<Compute<D>>(device))
    })
    .with_options(match host {
        None => "fusion=off: each op is run by itself",
        Some(_) => {
            "fusion=off: each op is run by itself; host-below=N: calls of less than N multiply-adds or elements run on the CPU"
        }
    })
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

/// Below which amount of work calls run on the host, if any do.
fn host_below(spec: &DeviceSpec) -> Result<Option<u64>> {
    let Some(text) = spec.option("host-below") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(below) => Ok(Some(below)),
        Err(_) => Err(spec
            .malformed(format!("host-below={text:?} is no amount of work"))
            .with_hint("write a number of multiply-adds or elements: host-below=100000")),
    }
}
