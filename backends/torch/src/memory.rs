//! Makes the C library keep the memory that LibTorch frees.

use std::sync::Once;

/// Makes glibc keep large freed blocks, once for the process.
///
/// By default it returns blocks from 128 KiB (later up to 32 MiB) to the system at once, and each op with a large
/// result pays for fresh pages, which are cleared one by one: a step of a small convolutional network took a fifth
/// longer. With these thresholds they are reused.
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
    // SAFETY: glibc's function takes its own lock; 32 MiB is the largest value that it accepts for the first.
    unsafe {
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn set() {}
