//! What must hold between the backends that are built in: `cargo test -p polygrad --features …`. Those that are there are found at run
//! time; with the CPU alone, most of it compares the CPU with itself on other kernels.

#![cfg(feature = "cpu")]

mod errors;
mod interop;
mod losses;
mod moving;

use polygrad::backend::{Availability, Registry};
use polygrad::{Device, Result};

/// The devices to compare: two forms of the CPU's kernels, the first of which the others are held to, and the first device of each other
/// backend that is there.
fn devices() -> Result<Vec<(String, Device)>> {
    let mut specs = vec!["cpu".to_owned(), "cpu:kernels=scalar".to_owned()];
    for entry in Registry::global()
        .entries()
        .iter()
        .filter(|entry| entry.name() != "cpu")
    {
        let mut there = entry.devices().into_iter();
        let device = there.find(|device| device.availability == Availability::Available);
        specs.extend(device.map(|device| device.spec));
    }
    let opened = |spec: String| {
        let device = Device::new(&spec)?;
        Ok((spec, device))
    };
    specs.into_iter().map(opened).collect()
}
