//! The driver, tested by the suite for drivers if there is an adapter.

use polygrad_conformance::driver::{DriverOptions, driver_harness};
use polygrad_conformance::libtest_mimic::{self, Arguments, Failed, Trial};
use polygrad_core::compute::ComputeBackend;
use polygrad_wgpu::WgpuDriver;

fn main() {
    let probe = WgpuDriver::open(None);
    let tests = match probe.init() {
        Ok(()) => {
            let make = || Ok(Box::new(WgpuDriver::open(None)) as Box<dyn ComputeBackend>);
            let options = DriverOptions {
                // The software adapter allows 128 MiB per buffer, and is slow.
                long: 4_000_000,
                ..DriverOptions::default()
            };
            driver_harness("wgpu", make, &options)
        }
        Err(error) => {
            println!("skipped: the suite for drivers on wgpu: {error}");
            let reason = error.to_string();
            let fail = move || match std::env::var_os("CI") {
                Some(_) => Err(Failed::from(reason)),
                None => Ok(()),
            };
            vec![Trial::test("wgpu: an adapter", fail)]
        }
    };
    // A bad index is reported late, to the next read from the driver, which all cases share.
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    libtest_mimic::run(&arguments, tests).exit()
}
