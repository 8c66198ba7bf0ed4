//! The backend and its registry entry.

use polygrad_core::{AnyDevice, Availability, BackendEntry, DeviceInfo};

use crate::{CpuDevice, Kernels, Level, available_threads};

/// Polygrad's native CPU backend: see the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu;

/// The backend for a [`Registry`](polygrad_core::Registry): its name is `cpu`, its options are `threads` and `kernels`.
pub fn entry() -> BackendEntry {
    BackendEntry::new("cpu", "Polygrad's own CPU kernels", |spec| {
        CpuDevice::open(spec).map(AnyDevice::new::<Cpu>)
    })
    .with_priority(0)
    .with_probe(|| {
        let threads = available_threads();
        vec![DeviceInfo {
            spec: "cpu".to_owned(),
            description: format!(
                "{threads} thread{}, {} instructions, kernels: {}",
                if threads == 1 { "" } else { "s" },
                Level::detect().name(),
                Kernels::built_names()
            ),
            availability: Availability::Available,
        }]
    })
}
