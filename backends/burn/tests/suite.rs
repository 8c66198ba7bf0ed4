//! The backends, compared with PyTorch by Polygrad's suite.

use polygrad_burn::Burn;
use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_tensor::{Device, Result};

fn main() -> Result<()> {
    let burn = Device::<Burn>::default();
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    let mut tests = harness("burn", &burn, &Options::default())?;
    tests.extend(harness("burn gradients", &burn, &gradients)?);
    #[cfg(feature = "wgpu")]
    match polygrad_burn::BurnWgpuDevice::new(0) {
        Ok(device) => {
            let wgpu = Device::<polygrad_burn::BurnWgpu>::from_inner(device);
            tests.extend(harness("burn:wgpu", &wgpu, &Options::default())?);
            tests.extend(harness("burn:wgpu gradients", &wgpu, &gradients)?);
        }
        Err(error) if std::env::var_os("CI").is_some() => return Err(error),
        Err(error) => println!("skipped: burn:wgpu: {error}"),
    }
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
