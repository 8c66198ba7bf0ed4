//! How the C library keeps the memory that LibTorch frees.

use std::sync::Once;

/// Lets glibc keep large blocks that are freed, once for the process.
///
/// By default it gives blocks from 128 KiB (later up to 32 MiB) back to the system at once, and each op that makes a
/// large tensor pays for fresh pages, cleared one by one: a step of a small convolutional network took a fifth longer.
/// With these thresholds they are reused.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(set);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "a C function")]
fn set() {
    const M_TRIM_THRESHOLD: i32 = -1;
    const M_MMAP_THRESHOLD: i32 = -3;
    unsafe extern "C" {
        fn mallopt(parameter: i32, value: i32) -> i32;
    }
    // SAFETY: glibc's function, which takes its own lock; 32 MiB is the most that it takes for the first.
    unsafe {
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn set() {}
