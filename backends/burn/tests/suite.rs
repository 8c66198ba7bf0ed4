//! The backend, held to PyTorch by Polygrad's suite.

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
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
