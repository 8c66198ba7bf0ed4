//! The backend, compared with PyTorch by Polygrad's suite.

use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_luminal::Luminal;
use polygrad_tensor::{Device, Result};

fn main() -> Result<()> {
    let luminal = Device::<Luminal>::default();
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    let mut tests = harness("luminal", &luminal, &Options::default())?;
    tests.extend(harness("luminal gradients", &luminal, &gradients)?);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
