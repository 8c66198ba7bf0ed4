//! The backends of this repository, held to the suite.

use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_reference::Reference;
use polygrad_tensor::{Device, Result};

fn main() -> Result<()> {
    let cpu = |kernels| Ok::<_, polygrad_tensor::Error>(Device::<Cpu>::from_inner(CpuDevice::new(2, kernels)?));
    let options = Options::default();
    let mut tests = harness("reference", &Device::<Reference>::default(), &options)?;
    tests.extend(harness("cpu", &cpu(Kernels::Simd)?, &options)?);
    tests.extend(harness("cpu:kernels=scalar", &cpu(Kernels::Scalar)?, &options)?);
    #[cfg(feature = "blas")]
    tests.extend(harness("cpu:kernels=blas", &cpu(Kernels::Blas)?, &options)?);
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    tests.extend(harness("cpu", &cpu(Kernels::Simd)?, &gradients)?);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
