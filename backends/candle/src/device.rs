//! Devices, and how a device string opens them.

use std::fmt;

use candle_core::{Device, DeviceLocation};
use polygrad_core::{AnyDevice, Availability, BackendEntry, DeviceInfo, DeviceSpec, Error, ErrorKind, Result};

use crate::Candle;
use crate::engine::engine;

/// A device of candle's.
#[derive(Clone, Debug)]
pub struct CandleDevice(Device);

impl CandleDevice {
    /// The processor.
    pub const CPU: Self = Self(Device::Cpu);

    /// An NVIDIA GPU, by its index.
    ///
    /// # Errors
    /// If this crate was built without its feature `cuda`, or there is no such GPU.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        if cfg!(not(feature = "cuda")) {
            return Err(Error::new(ErrorKind::BackendUnavailable, NO_CUDA).with_hint(BUILD_CUDA));
        }
        engine("open", || Device::new_cuda(ordinal)).map(Self).map_err(|e| {
            Error::new(
                ErrorKind::BackendUnavailable,
                format!("CUDA device {ordinal} does not open"),
            )
            .with_hint("nvidia-smi lists the GPUs and says whether the driver works")
            .with_source(e)
        })
    }

    /// candle's own handle.
    pub fn inner(&self) -> &Device {
        &self.0
    }

    pub(crate) fn is_cpu(&self) -> bool {
        self.0.is_cpu()
    }

    /// Opens the device of a device string: `candle`, `candle:cpu`, `candle:cuda` or `candle:cuda:1`.
    fn open(spec: &DeviceSpec) -> Result<Self> {
        let most = if spec.path().first().is_some_and(|part| part == "cuda") {
            2
        } else {
            1
        };
        spec.expect(most, &[])?;
        match spec.path() {
            [] => Ok(Self::CPU),
            [kind] if kind == "cpu" => Ok(Self::CPU),
            [kind, rest @ ..] if kind == "cuda" => match rest.first().map_or(Ok(0), |n| n.parse()) {
                Ok(ordinal) => Self::cuda(ordinal),
                Err(_) => Err(spec.malformed("a CUDA device is a number".to_owned())),
            },
            [other, ..] => Err(spec
                .malformed(format!("candle has no device {other:?}"))
                .with_hint("it has candle:cpu, and candle:cuda:0 and so on where it was built for CUDA")),
        }
    }
}

const NO_CUDA: &str = "candle was built without CUDA";
const BUILD_CUDA: &str = "in Cargo.toml, give polygrad features = [\"candle-cuda\"], which needs the CUDA toolkit";

impl Default for CandleDevice {
    fn default() -> Self {
        Self::CPU
    }
}

impl From<Device> for CandleDevice {
    fn from(device: Device) -> Self {
        Self(device)
    }
}

impl PartialEq for CandleDevice {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_device(&other.0)
    }
}

impl fmt::Display for CandleDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.location() {
            DeviceLocation::Cpu => f.write_str("candle"),
            DeviceLocation::Cuda { gpu_id } => write!(f, "candle:cuda:{gpu_id}"),
            DeviceLocation::Metal { gpu_id } => write!(f, "candle:metal:{gpu_id}"),
        }
    }
}

fn devices() -> Vec<DeviceInfo> {
    let mut devices = vec![DeviceInfo {
        spec: "candle".to_owned(),
        description: "candle's CPU kernels".to_owned(),
        availability: Availability::Available,
    }];
    let mut ordinal = 0;
    loop {
        let gpu = CandleDevice::cuda(ordinal);
        // If there is no GPU at all, the first one is listed with the reason.
        if ordinal > 0 && gpu.is_err() {
            return devices;
        }
        devices.push(DeviceInfo {
            spec: format!("candle:cuda:{ordinal}"),
            description: "candle's CUDA kernels".to_owned(),
            availability: match &gpu {
                Ok(_) => Availability::Available,
                Err(error) => Availability::Unavailable(error.to_string()),
            },
        });
        if gpu.is_err() {
            return devices;
        }
        ordinal += 1;
    }
}

/// The backend's registry entry: its name, a description, the devices, and how to open one.
pub fn entry() -> BackendEntry {
    BackendEntry::new("candle", "candle's tensors and kernels", |spec| {
        CandleDevice::open(spec).map(AnyDevice::new::<Candle>)
    })
    .with_probe(devices)
    .with_priority(-1)
}
