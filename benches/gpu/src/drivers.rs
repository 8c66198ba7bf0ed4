//! `drivers`: runs the conformance suite for drivers on the machine's own device.

use polygrad_conformance::driver::{DriverOptions, run_driver};
use polygrad_core::compute::ComputeBackend;
use polygrad_core::{DeviceSpec, Error, Result};

/// Runs the suite on the driver of a device string, and prints the results.
///
/// # Errors
/// If there is no such driver or device, or a case fails.
pub(crate) fn command(device: &str) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let spec: DeviceSpec = device.parse().map_err(text)?;
    let report = run_driver(&|| open(&spec), &DriverOptions::default()).map_err(text)?;
    println!("{report}");
    match report.complaints().len() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} cases fail on {device}")),
    }
}

fn open(spec: &DeviceSpec) -> Result<Box<dyn ComputeBackend>> {
    match spec.backend() {
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Box::new(polygrad_cuda::CudaDriver::open(spec)?)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Box::new(polygrad_wgpu::WgpuDriver::from_spec(spec)?)),
        other => Err(Error::invalid(format!("this program has no driver called {other:?}"))
            .with_hint("build it with the features cuda and wgpu")),
    }
}
