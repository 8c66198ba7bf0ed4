//! LibTorch, compared with PyTorch by the suite.

use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_tensor::{Device, Result};
use polygrad_torch::Torch;

fn main() -> Result<()> {
    let torch = Device::<Torch>::default();
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    let mut tests = harness("torch", &torch, &Options::default())?;
    tests.extend(harness("torch gradients", &torch, &gradients)?);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
