//! The official node cases on the CPU backend, or on the one that POLYGRAD_ONNX_BACKEND names: `cpu` with
//! options, or `compute-cpu`.

#[cfg(feature = "ort")]
mod edges;

use std::process::ExitCode;

use polygrad_tensor::{Registry, Result};
use polygrad_testing::node_cases as suite;

fn main() -> Result<ExitCode> {
    let registry = Registry::global();
    registry.register(polygrad_cpu::entry())?;
    let driver = polygrad_compute::entry("the CPU's kernels as a driver", polygrad_cpu::CpuDriver::open, Vec::new);
    registry.register(driver)?;
    let name = std::env::var("POLYGRAD_ONNX_BACKEND");
    let name = name.as_deref().unwrap_or("cpu");
    #[cfg(feature = "ort")]
    let further: Vec<suite::Further> = match name {
        "cpu" => vec![("differences from ONNX Runtime are on the page", edges::check)],
        _ => Vec::new(),
    };
    #[cfg(not(feature = "ort"))]
    let further = Vec::new();
    suite::run(name, None, further)
}
