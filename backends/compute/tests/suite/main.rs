//! The backend, compared with PyTorch by Polygrad's suite: over the CPU's kernels, fused and unfused, and over only the
//! kernels that a driver must have.

mod least;

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_cpu::CpuDriver;
use polygrad_tensor::{Device, Result};

use least::Least;

fn main() -> Result<()> {
    let fused = Device::<Compute<CpuDriver>>::from_inner(ComputeDevice::new(CpuDriver::default())?);
    let unfused = Device::<Compute<CpuDriver>>::from_inner(ComputeDevice::unfused(CpuDriver::default())?);
    let least = Device::<Compute<Least>>::from_inner(ComputeDevice::new(Least::default())?);
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    let mut tests = harness("compute-cpu", &fused, &Options::default())?;
    tests.extend(harness("compute-cpu:fusion=off", &unfused, &Options::default())?);
    tests.extend(harness("least", &least, &Options::default())?);
    tests.extend(harness("compute-cpu", &fused, &gradients)?);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
