//! Where tensors live.

use std::fmt;

use polygrad_core::{AnyDevice, Availability, BackendEntry, DeviceInfo, DeviceSpec, Error, ErrorKind, Result};

use crate::Burn;

/// Why the devices of Burn's other engines cannot be opened.
const ONLY_CPU: &str = "of Burn's engines this adapter has the CPU's, burn-flex";

/// A device of Burn's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BurnDevice {
    /// The CPU, by burn-flex.
    #[default]
    Cpu,
}

impl fmt::Display for BurnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("burn"),
        }
    }
}

/// What a registry needs to know: device strings `burn` and `burn:cpu`.
pub fn entry() -> BackendEntry {
    BackendEntry::new("burn", "Burn 0.22: its CPU engine, burn-flex", |spec| {
        open(spec).map(AnyDevice::new::<Burn>)
    })
    .with_probe(|| {
        vec![DeviceInfo {
            spec: "burn".to_owned(),
            description: "CPU, by burn-flex".to_owned(),
            availability: Availability::Available,
        }]
    })
    .with_priority(-3)
}

fn open(spec: &DeviceSpec) -> Result<BurnDevice> {
    spec.expect(2, &[])?;
    match spec.path().first().map(String::as_str) {
        None => Ok(BurnDevice::Cpu),
        Some("cpu") if spec.path().len() == 1 => Ok(BurnDevice::Cpu),
        Some("wgpu" | "cuda" | "rocm" | "metal" | "vulkan" | "webgpu") => {
            let error = Error::new(
                ErrorKind::BackendUnavailable,
                format!("device {spec} is not offered: {ONLY_CPU}"),
            );
            Err(error.with_hint("use burn, which is the CPU"))
        }
        Some(other) => Err(spec
            .malformed(format!("backend burn has no device {other:?}"))
            .with_hint("write burn or burn:cpu")),
    }
}
