//! The reference backend: a plain interpreter with which every other backend is compared.
//!
//! Real numbers are computed in f64 and rounded once to the tensor's dtype after each op, integers in i64 and wrapped
//! to their width. Each op is one loop over its output. Nothing is fused: fused ops run as the decompositions in
//! [`polygrad_core::decompose`], which are thereby tested, too.

mod backend;
mod elementwise;
mod indexing;
mod matmul;
mod movement;
mod number;
mod positions;
mod reduce;
mod sort;
mod support;
mod tensor;
mod window;

use std::fmt;

use polygrad_core::{AnyDevice, BackendEntry};

pub use tensor::ReferenceTensor;

/// The backend: see the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference;

/// The only device of reference tensors: host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceDevice;

impl ReferenceDevice {
    /// The device with its backend erased.
    pub fn erased() -> AnyDevice {
        AnyDevice::new::<Reference>(Self)
    }
}

impl fmt::Display for ReferenceDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reference")
    }
}

/// The backend for a [`Registry`](polygrad_core::Registry), under the name `reference`, without options.
/// `auto` never chooses it.
pub fn entry() -> BackendEntry {
    BackendEntry::new("reference", "slow and plain, to check others against", |spec| {
        spec.expect(0, &[])?;
        Ok(ReferenceDevice::erased())
    })
}
