//! Two drivers as one, held to the suite for drivers: with both running calls, and with one that has few kernels on either side.

#[path = "suite/least.rs"]
mod least;

use polygrad_compute::Routed;
use polygrad_conformance::driver::{DriverOptions, driver_harness};
use polygrad_conformance::libtest_mimic;
use polygrad_cpu::{CpuDevice, CpuDriver, Kernels};

use least::Least;

/// Between the smallest calls of the suite and the others.
const BELOW: u64 = 40;

fn main() {
    let options = DriverOptions {
        long: 300_000,
        ..DriverOptions::default()
    };
    let cpu = || CpuDevice::new(2, Kernels::Simd).map(CpuDriver::new);
    let mut tests = driver_harness(
        "cpu+cpu",
        move || Ok(Box::new(Routed::new(cpu()?, cpu()?, BELOW))),
        &options,
    );
    tests.extend(driver_harness(
        "least+cpu",
        move || Ok(Box::new(Routed::new(Least::default(), cpu()?, BELOW))),
        &options,
    ));
    tests.extend(driver_harness(
        "cpu+least",
        move || Ok(Box::new(Routed::new(cpu()?, Least::default(), BELOW))),
        &options,
    ));
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
