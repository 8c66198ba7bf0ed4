//! ONNX's official node cases on LibTorch.

use std::process::ExitCode;

use polygrad_tensor::{Registry, Result};
use polygrad_testing::node_cases as suite;

fn main() -> Result<ExitCode> {
    Registry::global().register(polygrad_torch::entry())?;
    suite::run("torch", None, Vec::new())
}
