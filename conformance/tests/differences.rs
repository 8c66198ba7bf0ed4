//! docs/differences.md lists every difference from PyTorch in edge cases.

use std::path::Path;

use polygrad_conformance::{differences, specials};
use polygrad_tensor::{Device, Result};

#[test]
fn the_page_has_the_ops_that_differ_at_the_edges() -> Result<()> {
    // Read at run time, since checkouts may share a build folder.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs tests");
    let here = Path::new(&here);
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    let found = specials(&here.join("data/specials"), &device)?;
    let page = here.join("../docs/differences.md");
    if let Err(wrong) = differences::hold(&page, "Ops at the edges", &found) {
        panic!("{wrong}");
    }
    Ok(())
}
