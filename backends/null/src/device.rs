//! The device, with its counters.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::{Error, ErrorKind, Result};

/// Counters of a [`NullDevice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Live tensors, including views, and tensors that live views refer to. Clones of a tensor count once.
    pub live_tensors: usize,
    /// Their bytes.
    pub live_bytes: usize,
    /// The most [`Stats::live_bytes`] so far, or since [`NullDevice::reset_peak`].
    pub peak_bytes: usize,
    /// Calls that created or changed tensors.
    pub calls: u64,
}

/// A device for tensors without values. Each has counters of its own, and tensors of different devices cannot be
/// combined; clones are the same device.
#[derive(Clone)]
pub struct NullDevice(Arc<Counters>);

struct Counters {
    number: u64,
    stats: Mutex<Stats>,
}

impl NullDevice {
    /// A device without tensors.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Counters {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            stats: Mutex::default(),
        }))
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        *self.lock()
    }

    /// Resets the peak to the bytes that are alive now, to measure that of the following steps.
    pub fn reset_peak(&self) {
        let mut stats = self.lock();
        stats.peak_bytes = stats.live_bytes;
    }

    /// Counts a call.
    pub(crate) fn called(&self) {
        self.lock().calls += 1;
    }

    /// Counts a new tensor.
    pub(crate) fn made(&self, bytes: usize) -> Result<()> {
        let mut stats = self.lock();
        let live = stats.live_bytes.checked_add(bytes).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{bytes} bytes beside {} are more than memory can address",
                    stats.live_bytes
                ),
            )
            .with_device(self)
        })?;
        stats.live_tensors += 1;
        stats.live_bytes = live;
        stats.peak_bytes = stats.peak_bytes.max(live);
        Ok(())
    }

    /// Counts a dropped tensor.
    pub(crate) fn dropped(&self, bytes: usize) {
        let mut stats = self.lock();
        stats.live_tensors -= 1;
        stats.live_bytes -= bytes;
    }

    fn lock(&self) -> MutexGuard<'_, Stats> {
        self.0.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for NullDevice {
    /// A new device.
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for NullDevice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for NullDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "null:{}", self.0.number)
    }
}

impl fmt::Debug for NullDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NullDevice({self}, {:?})", self.stats())
    }
}
