//! The backend that `Compute` makes of the driver, compared with PyTorch by Polygrad's suite if there is an adapter:
//! fused and unfused.
//!
//! The software adapter compiles a shader for each chain of a case, so without POLYGRAD_WGPU_SUITE in the environment,
//! bf16, f16, i32 and u8 are left to the suite for drivers.

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_conformance::{Options, harness, libtest_mimic};
use polygrad_core::compute::ComputeBackend;
use polygrad_tensor::{DType, Device, Result};
use polygrad_wgpu::WgpuDriver;

fn main() -> Result<()> {
    let arguments = libtest_mimic::Arguments::from_args();
    if let Err(error) = WgpuDriver::open(None).init() {
        println!("skipped: the suite on wgpu: {error}");
        return match std::env::var_os("CI") {
            Some(_) => Err(error),
            None => Ok(()),
        };
    }
    let fused = Device::<Compute<WgpuDriver>>::from_inner(ComputeDevice::new(WgpuDriver::open(None))?);
    let unfused = Device::<Compute<WgpuDriver>>::from_inner(ComputeDevice::unfused(WgpuDriver::open(None))?);
    let whole = std::env::var_os("POLYGRAD_WGPU_SUITE").is_some();
    let options = Options {
        dtypes: (!whole).then(|| vec![DType::F32, DType::I64, DType::Bool]),
        ..Options::default()
    };
    let mut tests = harness("wgpu", &fused, &options)?;
    tests.extend(harness("wgpu:fusion=off", &unfused, &options)?);
    // A bad index is reported late, to the next read from the device, which all cases share.
    let arguments = libtest_mimic::Arguments {
        test_threads: Some(1),
        ..arguments
    };
    libtest_mimic::run(&arguments, tests).exit()
}
