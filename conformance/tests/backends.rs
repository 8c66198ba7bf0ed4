//! Runs the conformance suite on the reference backend. Other backends' own tests run it on them.

use polygrad_conformance::{Options, harness, libtest_mimic};
use polygrad_reference::Reference;
use polygrad_tensor::{Device, Result};

fn main() -> Result<()> {
    let tests = harness("reference", &Device::<Reference>::default(), &Options::default())?;
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), tests).exit()
}
