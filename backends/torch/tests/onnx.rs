//! The official node cases of ONNX on LibTorch.

#[path = "../../../crates/onnx/tests/node_cases/suite/mod.rs"]
mod suite;

use std::process::ExitCode;

use polygrad_tensor::{Registry, Result};

fn main() -> Result<ExitCode> {
    Registry::global().register(polygrad_torch::entry())?;
    suite::run("torch", None, Vec::new())
}
