//! Compares the backend with PyTorch, using Polygrad's conformance suite.

use polygrad::{Device, Result};
use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_toy::Toy;

fn main() -> Result<()> {
    let toy = Device::<Toy>::default();
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    let mut tests = harness("toy", &toy, &Options::default())?;
    tests.extend(harness("toy gradients", &toy, &gradients)?);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
