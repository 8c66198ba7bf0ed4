//! The built-in backends, one line each.

use polygrad_core::{BackendEntry, BuiltIn};

polygrad_core::inventory::submit! { BuiltIn(built_in) }

fn built_in() -> Vec<BackendEntry> {
    vec![
        #[cfg(feature = "cpu")]
        polygrad_cpu::entry(),
        #[cfg(not(feature = "cpu"))]
        off("cpu", "native CPU kernels"),
        #[cfg(all(feature = "cpu", feature = "compute"))]
        polygrad_compute::entry("the CPU's kernels as a driver", polygrad_cpu::CpuDriver::open, Vec::new),
        #[cfg(not(all(feature = "cpu", feature = "compute")))]
        off("compute-cpu", "the CPU's kernels as a driver"),
        #[cfg(feature = "cuda")]
        cuda(),
        #[cfg(not(feature = "cuda"))]
        off("cuda", "NVIDIA's GPUs by CUDA"),
        #[cfg(feature = "wgpu")]
        wgpu(),
        #[cfg(not(feature = "wgpu"))]
        off("wgpu", "GPUs by Vulkan, Metal or DirectX 12"),
        #[cfg(feature = "torch")]
        polygrad_torch::entry(),
        #[cfg(not(feature = "torch"))]
        off("torch", "LibTorch, through the crate tch"),
        #[cfg(feature = "candle")]
        polygrad_candle::entry(),
        #[cfg(not(feature = "candle"))]
        off("candle", "Hugging Face's candle"),
        #[cfg(feature = "burn")]
        polygrad_burn::entry(),
        #[cfg(not(feature = "burn"))]
        off("burn", "Burn's own engines"),
        #[cfg(feature = "luminal")]
        polygrad_luminal::entry(),
        #[cfg(not(feature = "luminal"))]
        off("luminal", "Luminal's graphs"),
    ]
}

/// Our own kernels in CUDA C; `auto` prefers them to everything else if there is such a GPU.
#[cfg(feature = "cuda")]
fn cuda() -> BackendEntry {
    use polygrad_core::Availability;
    use polygrad_cuda::CudaDriver;

    let choice = || match CudaDriver::list().into_iter().next() {
        None => Err("there is no device".to_owned()),
        Some(device) => match device.availability {
            Availability::Available => Ok(device.spec),
            Availability::Unavailable(reason) => Err(reason),
        },
    };
    polygrad_compute::entry("NVIDIA's GPUs by CUDA", CudaDriver::open, CudaDriver::list)
        .with_choice(choice)
        .with_priority(20)
}

/// Our own shaders; `auto` prefers them to the CPU if there is a GPU.
#[cfg(feature = "wgpu")]
fn wgpu() -> BackendEntry {
    use polygrad_core::compute::ComputeBackend;
    use polygrad_wgpu::WgpuDriver;

    let devices = || WgpuDriver::open(None).devices();
    polygrad_compute::entry("GPUs by Vulkan, Metal or DirectX 12", WgpuDriver::from_spec, devices)
        .with_choice(WgpuDriver::choice)
        .with_priority(10)
}

/// A backend that this build leaves out.
#[cfg(not(all(
    feature = "cpu",
    feature = "compute",
    feature = "cuda",
    feature = "wgpu",
    feature = "torch",
    feature = "candle",
    feature = "burn",
    feature = "luminal"
)))]
fn off(name: &'static str, description: &'static str) -> BackendEntry {
    let feature = if name == "compute-cpu" { "compute" } else { name };
    BackendEntry::absent(name, description, "its cargo feature is off").with_fix(format!(
        "in Cargo.toml, give polygrad features = [\"{feature}\"]; build the command line with --features {feature}"
    ))
}
