//! ONNX's official node cases on the backend that `Compute` makes of the driver, if there is an adapter.

use std::process::ExitCode;

use polygrad_core::compute::ComputeBackend;
use polygrad_tensor::{Registry, Result};
use polygrad_testing::node_cases as suite;
use polygrad_wgpu::WgpuDriver;

fn main() -> Result<ExitCode> {
    if let Err(error) = WgpuDriver::open(None).init() {
        println!("skipped: the official ONNX cases on wgpu: {error}");
        return match std::env::var_os("CI") {
            Some(_) => Err(error),
            None => Ok(ExitCode::SUCCESS),
        };
    }
    let entry = polygrad_compute::entry("GPUs", WgpuDriver::from_spec, Vec::new);
    Registry::global().register(entry)?;
    // A bad index is reported late, to the next read from the device, which all cases share.
    suite::run("wgpu", Some(1), Vec::new())
}
