//! A toy backend for Polygrad, complete: every required op, in plain safe Rust and nothing but loops over vectors.
//!
//! It is here to be read, along with the page "Bring your own backend" (`docs/backend.md`). Beside it stands an engine
//! for processes that train together, [`Star`] (`docs/how-to/distributed.md`).

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

/// The backend: a type without values, whose methods are the ops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toy;

/// The only place where its tensors live: host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToyDevice;

impl fmt::Display for ToyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("toy")
    }
}

/// What a registry needs to know: the name in device strings, a description, and how to open a device.
pub fn entry() -> BackendEntry {
    BackendEntry::new("toy", "plain loops, one thread", |spec| {
        spec.expect(0, &[])?;
        Ok(AnyDevice::new::<Toy>(ToyDevice))
    })
}
