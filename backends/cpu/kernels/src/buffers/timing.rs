//! Timing the pool. While nobody measures, a request pays one look at a flag.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polygrad_core::Result;

use super::class_bytes;

/// What [`time_pool`] found, of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolTime {
    /// Blocks handed out.
    pub allocations: u64,
    /// Their bytes, which are those of size classes.
    pub bytes: u64,
    /// Blocks given back.
    pub frees: u64,
    /// What both took, less the reading of the clock.
    pub time: Duration,
}

/// How many measure at the moment.
static MEASURING: AtomicUsize = AtomicUsize::new(0);

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Runs `f`, and measures what the buffer pool does meanwhile, in any thread. Blocks are a little slower to
/// get until it returns.
pub fn time_pool<R>(f: impl FnOnce() -> R) -> (R, PoolTime) {
    /// Ends the measurement when `f` panics, too.
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

/// Whether anybody measures.
#[inline]
pub(super) fn is_on() -> bool {
    MEASURING.load(Ordering::Relaxed) != 0
}

/// Gets a block of a class by `alloc`.
pub(super) fn alloc<T>(class: usize, alloc: impl FnOnce() -> Result<T>) -> Result<T> {
    let block = timed(alloc)?;
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(class_bytes(class) as u64, Ordering::Relaxed);
    Ok(block)
}

/// Takes a block back by `free`.
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

/// What a measurement of nothing gives.
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
