//! The device, and how a registry opens it.

use std::fmt;

use polygrad_core::{AnyDevice, BackendEntry};

use crate::Luminal;

/// The device: host memory, the only one for which the published luminal compiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LuminalDevice;

impl fmt::Display for LuminalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("luminal")
    }
}

/// The registry entry. Device strings: `luminal`, which is `luminal:cpu`.
pub fn entry() -> BackendEntry {
    BackendEntry::new("luminal", "luminal 0.2: recorded graphs, on one CPU thread", |spec| {
        spec.expect(1, &[])?;
        match spec.path().first().map(String::as_str) {
            None | Some("cpu") => Ok(AnyDevice::new::<Luminal>(LuminalDevice)),
            Some(other) => Err(spec
                .malformed(format!("luminal has no device {other:?}"))
                .with_hint("the published luminal runs on the CPU: write luminal or luminal:cpu")),
        }
    })
    .with_priority(-4)
}
