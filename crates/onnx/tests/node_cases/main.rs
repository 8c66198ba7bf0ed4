//! The official node cases on the CPU backend, or on the one that POLYGRAD_ONNX_BACKEND names.

mod suite;

use std::process::ExitCode;

use polygrad_tensor::{Registry, Result};

fn main() -> Result<ExitCode> {
    Registry::global().register(polygrad_cpu::entry())?;
    let name = std::env::var("POLYGRAD_ONNX_BACKEND");
    suite::run(name.as_deref().unwrap_or("cpu"))
}
