//! Timing of the pool. Without a running measurement, a request only checks a flag.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polygrad_core::Result;

use super::class_bytes;

/// The result of [`time_pool`], over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolTime {
    /// Blocks handed out.
    pub allocations: u64,
    /// Their bytes, in whole size classes.
    pub bytes: u64,
    /// Blocks freed.
    pub frees: u64,
    /// The time of both, minus that of reading the clock.
    pub time: Duration,
}

/// The number of running measurements.
static MEASURING: AtomicUsize = AtomicUsize::new(0);

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Runs `f`, and measures the buffer pool during that time, in all threads. Until it returns, allocations are a little
/// slower.
pub fn time_pool<R>(f: impl FnOnce() -> R) -> (R, PoolTime) {
    /// Ends the measurement even if `f` panics.
    struct Measuring;
    impl Drop for Measuring {
        fn drop(&mut self) {
            MEASURING.fetch_sub(1, Ordering::Relaxed);
        }
    }

    let counters = || [&ALLOCATIONS, &BYTES, &FREES, &NANOSECONDS].map(|counter| counter.load(Ordering::Relaxed));
    let before = counters();
    MEASURING.fetch_add(1, Ordering::Relaxed);
    let measuring = Measuring;
    let result = f();
    drop(measuring);
    let after = counters();
    let [allocations, bytes, frees, nanoseconds] = std::array::from_fn(|i| after[i].wrapping_sub(before[i]));
    let clock = clock_nanoseconds().saturating_mul(allocations + frees);
    let time = PoolTime {
        allocations,
        bytes,
        frees,
        time: Duration::from_nanos(nanoseconds.saturating_sub(clock)),
    };
    (result, time)
}

/// Whether a measurement is running.
#[inline]
pub(super) fn is_on() -> bool {
    MEASURING.load(Ordering::Relaxed) != 0
}

/// Allocates a block of a class with `alloc`, and counts it.
pub(super) fn alloc<T>(class: usize, alloc: impl FnOnce() -> Result<T>) -> Result<T> {
    let block = timed(alloc)?;
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(class_bytes(class) as u64, Ordering::Relaxed);
    Ok(block)
}

/// Frees a block with `free`, and counts it.
pub(super) fn free(free: impl FnOnce()) {
    timed(free);
    FREES.fetch_add(1, Ordering::Relaxed);
}

fn timed<R>(f: impl FnOnce() -> R) -> R {
    let began = Instant::now();
    let result = f();
    NANOSECONDS.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}

/// The time measured for an empty measurement.
fn clock_nanoseconds() -> u64 {
    let nothing = |_| Instant::now().elapsed().as_nanos() as u64;
    (0..100).map(nothing).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Buffer;
    use super::*;

    #[test]
    fn the_pool_is_timed_while_somebody_measures() {
        let ((), time) = time_pool(|| {
            for bytes in [100, 4 << 20, 100] {
                drop(Buffer::alloc(bytes).unwrap());
            }
            assert!(Buffer::alloc(usize::MAX).is_err());
        });
        // Tests in other threads are counted too.
        assert!(time.allocations >= 3 && time.frees >= 3, "{time:?}");
        assert!(time.bytes >= (4 << 20) + 200 && !time.time.is_zero(), "{time:?}");
    }
}
