//! Shared by the tests: an open driver, and memory with values.

use std::io::Write as _;
use std::sync::OnceLock;

use polygrad_core::compute::{ComputeBackend, DevicePtr};
use polygrad_wgpu::WgpuDriver;

fn open() -> Result<WgpuDriver, String> {
    let driver = WgpuDriver::open(None);
    driver.init().map(|()| driver).map_err(|error| error.to_string())
}

/// Prints which test is skipped and why, bypassing the harness, which captures the output of passing tests. Under CI, a
/// skip is a failure.
fn skip<T>(reason: &str) -> Option<T> {
    assert!(std::env::var_os("CI").is_none(), "no adapter: {reason}");
    let thread = std::thread::current();
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {}: {reason}",
        thread.name().unwrap_or("a test")
    );
    None
}

/// A shared driver, for tests that do not break it.
pub(crate) fn driver() -> Option<&'static WgpuDriver> {
    static DRIVER: OnceLock<Result<WgpuDriver, String>> = OnceLock::new();
    match DRIVER.get_or_init(open) {
        Ok(driver) => Some(driver),
        Err(reason) => skip(reason),
    }
}

/// A driver for one test.
pub(crate) fn own_driver() -> Option<WgpuDriver> {
    open().map_or_else(|reason| skip(&reason), Some)
}

/// Allocates memory with these bytes.
pub(crate) fn bytes(driver: &WgpuDriver, bytes: &[u8]) -> DevicePtr {
    let ptr = driver.alloc(bytes.len()).unwrap();
    driver.copy_htod(ptr, bytes).unwrap();
    ptr
}

/// Allocates memory with these numbers.
pub(crate) fn put<T: bytemuck::NoUninit>(driver: &WgpuDriver, values: &[T]) -> DevicePtr {
    bytes(driver, bytemuck::cast_slice(values))
}

/// Reads the numbers at `ptr`.
pub(crate) fn get<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
    driver: &WgpuDriver,
    ptr: DevicePtr,
    len: usize,
) -> Vec<T> {
    let mut out = vec![T::zeroed(); len];
    driver.copy_dtoh(bytemuck::cast_slice_mut(&mut out), ptr).unwrap();
    out
}

/// Pseudo-random numbers from -1 to 1.
pub(crate) fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(12345) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (f64::from(x) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
        })
        .collect()
}
