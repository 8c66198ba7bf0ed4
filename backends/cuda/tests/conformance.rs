//! The driver over an emulated GPU, tested against the contract by the suite for drivers.

#[path = "emulator/mod.rs"]
mod emulator;

use polygrad_conformance::driver::{DriverOptions, driver_harness};
use polygrad_conformance::libtest_mimic;
use polygrad_core::compute::ComputeBackend;
use polygrad_cuda::CudaDriver;

use emulator::Emulator;

fn main() -> std::process::ExitCode {
    let options = DriverOptions {
        long: 200_000,
        ..DriverOptions::default()
    };
    if !emulator::present() {
        return std::process::ExitCode::SUCCESS;
    }
    let emulator = Emulator::new(32, 8, true);
    let device = emulator.clone();
    let make = move || Ok(Box::new(CudaDriver::over(Box::new(device.clone()))) as Box<dyn ComputeBackend>);
    let tests = driver_harness("cuda", make, &options);
    let conclusion = libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests);
    assert_eq!(emulator.allocations(), 0, "memory is left");
    conclusion.exit_code()
}
