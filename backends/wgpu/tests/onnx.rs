//! The official node cases of ONNX on the backend that `Compute` makes of the driver, where there is an adapter.

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
    // A bad index is told late, to whoever reads next from the device that all cases share.
    suite::run("wgpu", Some(1), Vec::new())
}
