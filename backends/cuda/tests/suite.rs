//! The backend that `Compute` makes of the driver, over an emulated GPU, compared with PyTorch by Polygrad's suite:
//! fused and unfused.
//!
//! Each chain of a case is a kernel for the C++ compiler, so only a sample runs without POLYGRAD_CUDA_SUITE in the
//! environment.

#[path = "emulator/mod.rs"]
mod emulator;

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_conformance::{Options, harness, libtest_mimic};
use polygrad_cuda::CudaDriver;
use polygrad_tensor::{DType, Device, Result};

use emulator::Emulator;

/// Parts of the names of cases that need many kernels, and whose ops have cases of their own.
const LARGE: [&str; 4] = ["For", "LMHead", " models.", " nn."];
/// The part of ` nn.` that is fast nevertheless.
const FUNCTIONS: &str = " nn.functional.";

fn main() -> Result<std::process::ExitCode> {
    let arguments = libtest_mimic::Arguments::from_args();
    if !emulator::present() {
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let emulator = Emulator::new(32, 8, true);
    let driver = || CudaDriver::over(Box::new(emulator.clone()));
    let fused = Device::<Compute<CudaDriver>>::from_inner(ComputeDevice::new(driver())?);
    let unfused = Device::<Compute<CudaDriver>>::from_inner(ComputeDevice::unfused(driver())?);
    let whole = std::env::var_os("POLYGRAD_CUDA_SUITE").is_some();
    let options = Options {
        sample: (!whole).then_some(1),
        // The suite for drivers covers the differences between floats.
        dtypes: (!whole).then(|| vec![DType::F32, DType::I64, DType::Bool]),
        ..Options::default()
    };
    let mut tests = harness("cuda", &fused, &options)?;
    tests.extend(harness("cuda:fusion=off", &unfused, &options)?);
    if !whole {
        let large = |name: &str| LARGE.iter().any(|part| name.contains(part)) && !name.contains(FUNCTIONS);
        tests.retain(|test| !large(test.name()));
    }
    let conclusion = libtest_mimic::run(&arguments, tests);
    drop((fused, unfused));
    assert_eq!(emulator.allocations(), 0, "memory is left");
    Ok(conclusion.exit_code())
}
