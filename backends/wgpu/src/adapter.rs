//! Listing adapters, and opening one.

use std::sync::{Arc, Mutex, OnceLock};

use polygrad_core::{Availability, DeviceInfo, Error, ErrorKind, Result};
use wgpu::{Adapter, AdapterInfo, Backends, DeviceType, Features, Instance, InstanceDescriptor};

use crate::gpu::Gpu;
use crate::state::State;

/// The backends that are requested. Without shaders in GLSL, and thus without OpenGL.
const BACKENDS: Backends = Backends::PRIMARY;

fn instance() -> Instance {
    Instance::new(InstanceDescriptor {
        backends: BACKENDS,
        ..InstanceDescriptor::new_without_display_handle()
    })
}

/// Whether the adapter computes on a CPU.
pub(crate) fn is_software(info: &AdapterInfo) -> bool {
    info.device_type == DeviceType::Cpu
}

/// The adapters, fastest kinds first, without duplicates: DirectX and Vulkan may both list an adapter.
async fn adapters() -> Vec<Adapter> {
    let mut found = instance().enumerate_adapters(BACKENDS).await;
    let rank = |adapter: &Adapter| match adapter.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    };
    found.sort_by_key(rank);
    let mut kept: Vec<Adapter> = Vec::new();
    for adapter in found {
        let info = adapter.get_info();
        let twin = |other: &Adapter| {
            let other = other.get_info();
            (other.vendor, other.device, &other.name) == (info.vendor, info.device, &info.name)
                && other.backend != info.backend
        };
        if !kept.iter().any(twin) {
            kept.push(adapter);
        }
    }
    kept
}

fn none_found() -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        "there is no adapter for Vulkan, Metal, DirectX 12 or WebGPU",
    )
    .with_hint(
        "install a GPU's driver, or the software driver: mesa-vulkan-drivers and libvulkan1 on Debian, \
         with XDG_RUNTIME_DIR naming a folder",
    )
}

/// The device string of an adapter.
pub(crate) fn spec(index: usize) -> String {
    match index {
        0 => "wgpu".to_owned(),
        i => format!("wgpu:{i}"),
    }
}

/// The adapters of this machine, listed once.
pub(crate) fn devices() -> Vec<DeviceInfo> {
    static FOUND: OnceLock<Vec<DeviceInfo>> = OnceLock::new();
    FOUND.get_or_init(list).clone()
}

/// The first adapter if it is a GPU. The adapter is not opened, so only its kind is known.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn choice() -> Result<String, String> {
    let found = crate::wait::block_on(adapters());
    match found.first().map(Adapter::get_info) {
        Some(info) if is_software(&info) => Err(format!("{} computes on the CPU", info.name)),
        Some(_) => Ok(spec(0)),
        None => Err(none_found().to_string()),
    }
}

/// A browser cannot block to wait for an adapter, so nothing can be chosen.
#[cfg(target_arch = "wasm32")]
pub(crate) fn choice() -> Result<String, String> {
    Err("a browser's adapter is opened by WgpuDriver::new_async".to_owned())
}

#[cfg(target_arch = "wasm32")]
fn list() -> Vec<DeviceInfo> {
    vec![DeviceInfo {
        spec: spec(0),
        description: "the browser's WebGPU".to_owned(),
        availability: Availability::Available,
    }]
}

#[cfg(not(target_arch = "wasm32"))]
fn list() -> Vec<DeviceInfo> {
    let found = crate::wait::block_on(adapters());
    if found.is_empty() {
        return vec![DeviceInfo {
            spec: spec(0),
            description: "GPU".to_owned(),
            availability: Availability::Unavailable(none_found().to_string()),
        }];
    }
    let describe = |(i, adapter): (usize, &Adapter)| {
        let info = adapter.get_info();
        DeviceInfo {
            spec: spec(i),
            description: format!("{} ({})", info.name, info.backend),
            availability: Availability::Available,
        }
    };
    found.iter().enumerate().map(describe).collect()
}

async fn choose(index: Option<usize>) -> Result<Adapter> {
    if cfg!(target_arch = "wasm32") {
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let adapter = instance().request_adapter(&options).await;
        return adapter.map_err(|error| none_found().with_source(error));
    }
    let mut found = adapters().await;
    let index = index.unwrap_or(0);
    if found.is_empty() {
        return Err(none_found());
    }
    if index >= found.len() {
        let names: Vec<_> = (found.iter().enumerate())
            .map(|(i, adapter)| format!("{} ({})", spec(i), adapter.get_info().name))
            .collect();
        return Err(
            Error::new(ErrorKind::BackendUnavailable, format!("there is no adapter {index}"))
                .with_hint(format!("there are {}", names.join(", "))),
        );
    }
    Ok(found.swap_remove(index))
}

/// Opens an adapter with the largest limits that it has.
pub(crate) async fn open(index: Option<usize>, name: &str) -> Result<Gpu> {
    let adapter = choose(index).await?;
    let info = adapter.get_info();
    let limits = adapter.limits();
    let features = adapter.features() & Features::SHADER_INT64;
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("polygrad"),
        required_features: features,
        required_limits: limits.clone(),
        ..Default::default()
    };
    let (device, queue) = adapter.request_device(&descriptor).await.map_err(|error| {
        Error::new(
            ErrorKind::BackendUnavailable,
            format!("{} gives no device: {error}", info.name),
        )
    })?;
    let failure = Arc::new(Mutex::new(None));
    crate::failure::watch(&device, &failure);
    let state = State::new(&device);
    Ok(Gpu {
        name: name.to_owned(),
        device,
        queue,
        info,
        limits,
        int64: features.contains(Features::SHADER_INT64),
        failure,
        state: Mutex::new(state),
    })
}
