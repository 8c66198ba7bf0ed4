//! Registration of Burn's engines.

use polygrad_core::{AnyDevice, Availability, BackendEntry, DeviceInfo, DeviceSpec, Error, ErrorKind, Result};

use crate::{Burn, BurnDevice};

/// The registry entry: device strings `burn` and `burn:cpu`, and with feature `wgpu` also `burn:wgpu` and
/// `burn:wgpu:N`.
pub fn entry() -> BackendEntry {
    BackendEntry::new(
        "burn",
        "Burn 0.22: its CPU engine, burn-flex, and its wgpu devices",
        open,
    )
    .with_probe(|| {
        let cpu = DeviceInfo {
            spec: "burn".to_owned(),
            description: "CPU, by burn-flex".to_owned(),
            availability: Availability::Available,
        };
        let mut devices = vec![cpu];
        devices.extend(wgpu_devices());
        devices
    })
    .with_priority(-3)
}

fn open(spec: &DeviceSpec) -> Result<AnyDevice> {
    spec.expect(2, &[])?;
    match spec.path() {
        [] => Ok(AnyDevice::new::<Burn>(BurnDevice::Cpu)),
        [cpu] if cpu == "cpu" => Ok(AnyDevice::new::<Burn>(BurnDevice::Cpu)),
        [wgpu, rest @ ..] if wgpu == "wgpu" => open_wgpu(spec, rest.first().map(String::as_str)),
        [other, ..] if ["cuda", "rocm", "metal", "vulkan", "webgpu"].contains(&other.as_str()) => {
            let error = Error::new(
                ErrorKind::BackendUnavailable,
                format!(
                    "device {spec} is not offered: of Burn's engines this adapter has the CPU's, burn-flex, and wgpu"
                ),
            );
            Err(error.with_hint("use burn, which is the CPU, or burn:wgpu"))
        }
        [other, ..] => Err(spec
            .malformed(format!("backend burn has no device {other:?}"))
            .with_hint("write burn, burn:cpu, burn:wgpu or burn:wgpu:0")),
    }
}

#[cfg(feature = "wgpu")]
fn open_wgpu(spec: &DeviceSpec, index: Option<&str>) -> Result<AnyDevice> {
    let index = match index.map(str::parse) {
        None => 0,
        Some(Ok(index)) => index,
        Some(Err(_)) => {
            return Err(spec
                .malformed("what follows burn:wgpu is the number of an adapter".to_owned())
                .with_hint("write burn:wgpu or burn:wgpu:0"));
        }
    };
    crate::BurnWgpuDevice::new(index).map(AnyDevice::new::<crate::BurnWgpu>)
}

#[cfg(feature = "wgpu")]
fn wgpu_devices() -> Vec<DeviceInfo> {
    crate::wgpu::devices()
}

/// The reason with the fix, since lists of devices show only reasons.
#[cfg(not(feature = "wgpu"))]
const OFF: &str = "the cargo feature `burn-wgpu` is off; in Cargo.toml, give polygrad features = [\"burn-wgpu\"]";

#[cfg(not(feature = "wgpu"))]
fn open_wgpu(spec: &DeviceSpec, _: Option<&str>) -> Result<AnyDevice> {
    let message = format!("device {spec} is not available: {OFF}");
    Err(Error::new(ErrorKind::BackendUnavailable, message).with_hint("in crate polygrad-burn, the feature is wgpu"))
}

#[cfg(not(feature = "wgpu"))]
fn wgpu_devices() -> Vec<DeviceInfo> {
    vec![DeviceInfo {
        spec: "burn:wgpu".to_owned(),
        description: String::new(),
        availability: Availability::Unavailable(OFF.to_owned()),
    }]
}
