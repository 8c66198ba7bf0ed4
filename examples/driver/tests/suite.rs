//! Tests the driver with Polygrad's conformance suite.

use polygrad_conformance::driver::{DriverOptions, driver_harness};
use polygrad_conformance::libtest_mimic;
use polygrad_toy_driver::ToyDriver;

fn main() {
    let options = DriverOptions {
        long: 1_000_000,
        ..DriverOptions::default()
    };
    let tests = driver_harness("toy", || Ok(Box::new(ToyDriver::default())), &options);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
