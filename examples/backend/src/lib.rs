//! A toy backend for Polygrad, complete: every required op, in plain safe Rust and nothing but loops over vectors.
//!
//! It is meant to be read together with the page "Bring your own backend" (`docs/backend.md`). The crate also contains
//! an engine for processes that train together, [`Star`] (`docs/how-to/distributed.md`).

mod backend;
mod elementwise;
mod index;
mod matmul;
mod movement;
mod reduce;
mod star;
mod support;
mod tensor;
mod total;
mod window;

use std::fmt;

use polygrad::backend::{AnyDevice, BackendEntry};

pub use star::{Star, engine};
pub use tensor::ToyTensor;

/// The backend: a type without values, with the ops as its methods.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toy;

/// The only device: host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToyDevice;

impl fmt::Display for ToyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("toy")
    }
}

/// The entry for a registry: the name in device strings, a description, and how to open a device.
pub fn entry() -> BackendEntry {
    BackendEntry::new("toy", "plain loops, one thread", |spec| {
        spec.expect(0, &[])?;
        Ok(AnyDevice::new::<Toy>(ToyDevice))
    })
}
