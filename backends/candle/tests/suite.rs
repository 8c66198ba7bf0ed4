//! The backend, compared with PyTorch by the suite.

use polygrad_candle::Candle;
use polygrad_conformance::{Mode, Options, harness, libtest_mimic};
use polygrad_tensor::{Device, Result};

fn main() -> Result<()> {
    let candle = Device::<Candle>::default();
    let gradients = Options {
        mode: Mode::Grad,
        ..Options::default()
    };
    let mut tests = harness("candle", &candle, &Options::default())?;
    tests.extend(harness("candle gradients", &candle, &gradients)?);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
