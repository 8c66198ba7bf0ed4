//! The backend with each of its kinds of kernels, held to PyTorch by the suite.

use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_tensor::{Device, Error, Result};

fn main() -> Result<()> {
    let cpu = |kernels| Ok::<_, Error>(Device::<Cpu>::from_inner(CpuDevice::new(2, kernels)?));
    let options = Options::default();
    let mut tests = harness("cpu", &cpu(Kernels::Simd)?, &options)?;
    tests.extend(harness("cpu:kernels=scalar", &cpu(Kernels::Scalar)?, &options)?);
    if cfg!(feature = "blas") {
        tests.extend(harness("cpu:kernels=blas", &cpu(Kernels::Blas)?, &options)?);
    }
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    tests.extend(harness("cpu", &cpu(Kernels::Simd)?, &gradients)?);
    // Layers with their parameters, as somebody's own vectors.
    for folder in ["modules", "recurrent"] {
        let data = [env!("CARGO_MANIFEST_DIR"), "../../conformance/data", folder];
        let own = Options {
            vectors: Some(data.iter().collect()),
            ..gradients.clone()
        };
        tests.extend(harness(&format!("cpu {folder}"), &cpu(Kernels::Simd)?, &own)?);
    }
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
