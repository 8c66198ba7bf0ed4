//! Devices: listing and opening them.

use std::fmt;

use polygrad_core::{AnyDevice, Availability, BackendEntry, DeviceInfo, DeviceSpec, Error, ErrorKind, Result};

use crate::{Torch, memory};

/// The error for requesting CUDA from a LibTorch without it.
const NO_CUDA: &str = "this LibTorch was built without CUDA";

/// A device of LibTorch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TorchDevice {
    /// Host memory.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its index.
    Cuda(usize),
}

impl fmt::Display for TorchDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("torch"),
            Self::Cuda(index) => write!(f, "torch:cuda:{index}"),
        }
    }
}

impl From<TorchDevice> for tch::Device {
    fn from(device: TorchDevice) -> Self {
        match device {
            TorchDevice::Cpu => Self::Cpu,
            TorchDevice::Cuda(index) => Self::Cuda(index),
        }
    }
}

impl TryFrom<tch::Device> for TorchDevice {
    type Error = Error;

    fn try_from(device: tch::Device) -> Result<Self> {
        match device {
            tch::Device::Cpu => Ok(Self::Cpu),
            tch::Device::Cuda(index) => Ok(Self::Cuda(index)),
            other => Err(Error::unsupported(format!("LibTorch's device {other:?}"))
                .with_hint("move the tensor to the CPU or to CUDA first")),
        }
    }
}

/// Opens `torch`, `torch:cpu`, `torch:cuda` or `torch:cuda:1`, with `threads=N`.
fn open(spec: &DeviceSpec) -> Result<TorchDevice> {
    spec.expect(2, &["threads"])?;
    let device = match spec.path() {
        [] => TorchDevice::Cpu,
        [place] if place == "cpu" => TorchDevice::Cpu,
        [place] if place == "cuda" => cuda(spec, 0)?,
        [place, index] if place == "cuda" => {
            let index = index
                .parse()
                .map_err(|_| spec.malformed(format!("{index:?} is no number of a CUDA device")))?;
            cuda(spec, index)?
        }
        _ => {
            let error = spec.malformed(format!("LibTorch has no device {:?}", spec.path().join(":")));
            return Err(error.with_hint("write torch:cpu, torch:cuda or torch:cuda:0"));
        }
    };
    if let Some(threads) = spec.option("threads") {
        let count: i32 = match threads.parse() {
            Ok(count) if (1..=1024).contains(&count) => count,
            _ => {
                let error = spec.malformed(format!("threads={threads} is no number of threads"));
                return Err(error.with_hint("give 1 to 1024"));
            }
        };
        tch::set_num_threads(count);
    }
    memory::prepare();
    Ok(device)
}

fn cuda(spec: &DeviceSpec, index: usize) -> Result<TorchDevice> {
    let unavailable = |reason: String, hint: &'static str| {
        Err(Error::new(
            ErrorKind::BackendUnavailable,
            format!("device {:?}: {reason}", spec.to_string()),
        )
        .with_hint(hint))
    };
    if !tch::utils::has_cuda() {
        return unavailable(
            NO_CUDA.to_owned(),
            "set LIBTORCH to a LibTorch 2.13.0 with CUDA and build again, or use torch:cpu",
        );
    }
    let count = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
    if index < count {
        return Ok(TorchDevice::Cuda(index));
    }
    unavailable(
        format!("LibTorch finds {count} CUDA devices"),
        "check that the NVIDIA driver is installed, or use torch:cpu",
    )
}

/// The devices of this machine.
fn probe() -> Vec<DeviceInfo> {
    let cpu = DeviceInfo {
        spec: "torch:cpu".to_owned(),
        description: format!("LibTorch 2.13 on the CPU, {} threads", tch::get_num_threads()),
        availability: Availability::Available,
    };
    let mut out = vec![cpu];
    let count = if tch::utils::has_cuda() {
        tch::Cuda::device_count()
    } else {
        0
    };
    out.extend((0..count).map(|index| DeviceInfo {
        spec: format!("torch:cuda:{index}"),
        description: format!("LibTorch 2.13 on CUDA device {index}"),
        availability: Availability::Available,
    }));
    out
}

/// The backend's registry entry; `torch` is the CPU.
///
/// The option `threads=N` sets the number of LibTorch's threads in this process, since it has one pool for all devices.
pub fn entry() -> BackendEntry {
    BackendEntry::new("torch", "LibTorch, the engine of PyTorch", |spec| {
        Ok(AnyDevice::new::<Torch>(open(spec)?))
    })
    .with_probe(probe)
    .with_priority(-1)
}
