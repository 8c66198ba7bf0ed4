//! Properties that must hold between the built-in backends: `cargo test -p polygrad --features …`. Available ones are
//! found at run time; with only the CPU, most tests compare the CPU's kernels with each other.

#![cfg(feature = "cpu")]

mod autocast;
mod captured;
mod errors;
mod interop;
mod losses;
mod moving;
mod parallel;
#[cfg(feature = "rl")]
mod ppo;

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use polygrad::backend::{Availability, DeviceInfo, Registry};
use polygrad::{Device, Result};

/// Held by the test that uses the devices: a device that checks indices late reports the error to the next reader,
/// which must not be another test.
static IN_USE: Mutex<()> = Mutex::new(());

thread_local! {
    /// Each test runs on its own thread, whose end releases the devices.
    static TURN: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// The devices to compare: two variants of the CPU's kernels, the first of which is the reference, the first device of
/// each other available backend, and the first of Burn's wgpu devices. They belong to the calling test until it ends.
fn devices() -> Result<Vec<(String, Device)>> {
    TURN.with_borrow_mut(|turn| {
        turn.get_or_insert_with(|| IN_USE.lock().unwrap_or_else(PoisonError::into_inner));
    });
    let mut specs = vec!["cpu".to_owned(), "cpu:kernels=scalar".to_owned()];
    for entry in Registry::global()
        .entries()
        .iter()
        .filter(|entry| entry.name() != "cpu")
    {
        let listed = entry.devices();
        let there = |device: &&DeviceInfo| device.availability == Availability::Available;
        let first = listed.iter().find(there);
        let wgpu = listed.iter().find(|device| device.spec == "burn:wgpu");
        if let Some(Availability::Unavailable(reason)) = wgpu.map(|device| &device.availability) {
            println!("skipped: burn:wgpu: {reason}");
        }
        specs.extend(
            first
                .into_iter()
                .chain(wgpu.filter(there))
                .map(|device| device.spec.clone()),
        );
    }
    let opened = |spec: String| {
        let device = Device::new(&spec)?;
        Ok((spec, device))
    };
    specs.into_iter().map(opened).collect()
}
