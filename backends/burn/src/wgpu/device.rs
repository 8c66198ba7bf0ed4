//! The adapters of this machine.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, PoisonError};

use burn_backend::{Backend, DType as BurnDType};
use burn_cubecl::CubeDevice;
use burn_wgpu::graphics::AutoGraphicsApi;
use burn_wgpu::wgpu::{self, Backends, DeviceType};
use burn_wgpu::{CubeBackend, RuntimeOptions, WgpuBackend, WgpuDevice, WgpuInitError, try_init_setup};
use cubecl::wgpu::WgpuDeviceKind;
use polygrad_core::{Availability, DType, DeviceInfo, Error, ErrorKind, Result};

use crate::wgpu::support::DTYPES;
use crate::wgpu::tensor::burn_dtype;

/// The fix if no adapter is found. Error messages include it, since the registry replaces their hints.
const INSTALL: &str =
    "install the graphics card's Vulkan driver, or one that computes on the CPU (Debian: mesa-vulkan-drivers)";

struct Adapter {
    name: String,
    device: WgpuDevice,
}

/// All adapters of the first graphics interface that has any, in the interface's order. OpenGL is not included, since
/// its shaders have no 64-bit integers.
///
/// The instance is kept, since Vulkan's loader may crash if instances are created and dropped on several threads.
static ADAPTERS: LazyLock<(wgpu::Instance, Vec<Adapter>)> = LazyLock::new(|| {
    let interfaces = [
        (Backends::VULKAN, WgpuBackend::Vulkan),
        (Backends::METAL, WgpuBackend::Metal),
        (Backends::DX12, WgpuBackend::Dx12),
    ];
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: Backends::PRIMARY,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let found = interfaces.into_iter().map(|(backends, interface)| {
        let infos = burn_std::future::block_on(instance.enumerate_adapters(backends));
        named(infos.iter().map(wgpu::Adapter::get_info), interface)
    });
    let adapters = found
        .into_iter()
        .find(|adapters| !adapters.is_empty())
        .unwrap_or_default();
    (instance, adapters)
});

/// CubeCL numbers the adapters of each kind separately, and supports one software adapter.
fn named(infos: impl Iterator<Item = wgpu::AdapterInfo>, interface: WgpuBackend) -> Vec<Adapter> {
    let mut counts = [0; 5];
    let mut adapters = Vec::new();
    for info in infos {
        let (place, kind): (usize, fn(usize) -> WgpuDeviceKind) = match info.device_type {
            DeviceType::DiscreteGpu => (0, WgpuDeviceKind::DiscreteGpu),
            DeviceType::IntegratedGpu => (1, WgpuDeviceKind::IntegratedGpu),
            DeviceType::VirtualGpu => (2, WgpuDeviceKind::VirtualGpu),
            DeviceType::Cpu => (3, |_| WgpuDeviceKind::Cpu),
            DeviceType::Other => (4, WgpuDeviceKind::Other),
        };
        let nth = counts[place];
        counts[place] += 1;
        if info.device_type == DeviceType::Cpu && nth > 0 {
            continue;
        }
        adapters.push(Adapter {
            name: format!("{} ({:?})", info.name, info.backend),
            device: WgpuDevice::new(kind(nth)).on(interface),
        });
    }
    adapters
}

/// The adapters; empty if the driver's library fails.
fn adapters() -> &'static [Adapter] {
    catch_unwind(|| ADAPTERS.1.as_slice()).unwrap_or_default()
}

/// The adapters that have been opened.
static OPEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// One of this machine's adapters: `burn:wgpu:N` is number N, `burn:wgpu` the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BurnWgpuDevice {
    index: usize,
}

impl BurnWgpuDevice {
    /// Opens an adapter.
    ///
    /// # Errors
    /// If there is no adapter of this number, if it cannot be opened, or if its shaders have no 64-bit integers, which
    /// positions need.
    pub fn new(index: usize) -> Result<Self> {
        let adapters = adapters();
        let Some(adapter) = adapters.get(index) else {
            return Err(absent(index, adapters));
        };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains(&index) {
            let unavailable = |cause: String| {
                Error::new(
                    ErrorKind::BackendUnavailable,
                    format!("adapter {} could not be opened: {cause}", adapter.name),
                )
                .with_hint("update its driver, or use another adapter or backend burn, which is the CPU")
            };
            let opened = catch_unwind(AssertUnwindSafe(|| {
                try_init_setup::<AutoGraphicsApi>(&adapter.device, RuntimeOptions::try_default()?)
            }));
            match opened {
                // Other code that uses Burn may have opened it.
                Ok(Ok(_) | Err(WgpuInitError::Registration { .. })) => {}
                Ok(Err(error)) => return Err(unavailable(error.to_string())),
                Err(_) => return Err(unavailable("its driver failed".to_owned())),
            }
            let device = CubeDevice::Wgpu(adapter.device.clone());
            if !CubeBackend::supports_dtype(&device, BurnDType::I64) {
                return Err(unavailable("its shaders have no 64-bit integers".to_owned()));
            }
            open.push(index);
        }
        Ok(Self { index })
    }

    /// Burn's name for the device. Burn's tensors must be created on it to be converted to Polygrad's.
    pub fn cube(self) -> CubeDevice {
        CubeDevice::Wgpu(adapters()[self.index].device.clone())
    }

    /// The device of one of Burn's tensors.
    pub(crate) fn of(device: &CubeDevice) -> Result<Self> {
        let found = adapters()
            .iter()
            .position(|adapter| *device == CubeDevice::Wgpu(adapter.device.clone()));
        match found {
            Some(index) => Self::new(index),
            None => Err(Error::new(
                ErrorKind::Device,
                format!("Burn's device {device:?} is none of Polygrad's"),
            )
            .with_hint("make the tensor on the device that BurnWgpuDevice::cube gives")),
        }
    }

    /// The adapter's name.
    pub fn adapter(self) -> &'static str {
        &adapters()[self.index].name
    }

    /// The dtypes that both the adapter's shaders and this backend support.
    pub(crate) fn dtypes(self) -> Vec<DType> {
        let device = self.cube();
        let has = |dtype: &DType| CubeBackend::supports_dtype(&device, burn_dtype(*dtype));
        DTYPES.into_iter().filter(has).collect()
    }
}

impl fmt::Display for BurnWgpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            0 => f.write_str("burn:wgpu"),
            index => write!(f, "burn:wgpu:{index}"),
        }
    }
}

fn absent(index: usize, adapters: &[Adapter]) -> Error {
    if adapters.is_empty() {
        return Error::new(ErrorKind::BackendUnavailable, format!("{NONE}; {INSTALL}")).with_hint(INSTALL);
    }
    let listed: Vec<String> = (0..)
        .zip(adapters)
        .map(|(i, adapter)| format!("burn:wgpu:{i} is {}", adapter.name))
        .collect();
    Error::new(
        ErrorKind::BackendUnavailable,
        format!("there is no adapter number {index}: {}", listed.join(", ")),
    )
    .with_hint("use one of these")
}

const NONE: &str = "no adapter was found: there is no Vulkan driver, nor Metal nor DirectX 12";

/// The adapters for the registry, or why there is none. None of them is opened.
pub(crate) fn devices() -> Vec<DeviceInfo> {
    let adapters = adapters();
    if adapters.is_empty() {
        return vec![DeviceInfo {
            spec: "burn:wgpu".to_owned(),
            description: String::new(),
            availability: Availability::Unavailable(format!("{NONE}; {INSTALL}")),
        }];
    }
    let info = |(index, adapter): (usize, &Adapter)| DeviceInfo {
        spec: BurnWgpuDevice { index }.to_string(),
        description: format!("{}, by burn-wgpu", adapter.name),
        availability: Availability::Available,
    };
    adapters.iter().enumerate().map(info).collect()
}
