//! The built-in backends: one line for each.

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

/// A backend that this build leaves out.
#[cfg(not(all(
    feature = "cpu",
    feature = "compute",
    feature = "torch",
    feature = "candle",
    feature = "burn",
    feature = "luminal"
)))]
fn off(name: &'static str, description: &'static str) -> BackendEntry {
    let feature = if name == "compute-cpu" { "compute" } else { name };
    BackendEntry::absent(
        name,
        description,
        format!("the cargo feature `{feature}` is off; build with --features {feature}"),
    )
}
