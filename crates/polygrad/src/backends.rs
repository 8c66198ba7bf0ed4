//! The built-in backends: one line for each.

use polygrad_core::{BackendEntry, BuiltIn};

polygrad_core::inventory::submit! { BuiltIn(built_in) }

fn built_in() -> Vec<BackendEntry> {
    vec![
        #[cfg(feature = "cpu")]
        polygrad_cpu::entry(),
        #[cfg(not(feature = "cpu"))]
        BackendEntry::absent("cpu", "native CPU kernels", "the cargo feature `cpu` is off"),
    ]
}
