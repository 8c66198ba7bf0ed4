//! Memory of the device, kept for the next tensor of its size.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use polygrad_core::compute::DevicePtr;
use polygrad_core::{ErrorKind, Result};

use crate::Context;

/// What a device's memory is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes of tensors that are alive.
    pub live_bytes: u64,
    /// The most [`MemoryStats::live_bytes`] so far.
    pub peak_bytes: u64,
    /// Bytes that are kept for tensors to come.
    pub cached_bytes: u64,
    /// Buffers of tensors that are alive.
    pub live_buffers: u64,
    /// How often the driver was asked for memory.
    pub allocations: u64,
    /// How often memory was there already.
    pub reuses: u64,
    /// How often the cache was given back because the driver had no memory left.
    pub flushes: u64,
    /// Buffers that the driver would not take back.
    pub failed_frees: u64,
}

/// Freed buffers by size class.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    free: BTreeMap<usize, Vec<DevicePtr>>,
    stats: MemoryStats,
}

/// The bytes that are allocated for so many: four classes between two powers of two, so that at most a fifth is wasted.
fn size_class(bytes: usize) -> usize {
    const SMALLEST: usize = 256;
    let bytes = bytes.max(SMALLEST);
    let step = ((1 << bytes.ilog2()) / 4).max(SMALLEST);
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

/// Memory on the device, given back to the cache when the last tensor over it goes.
#[derive(Debug)]
pub(crate) struct Buffer {
    context: Arc<Context>,
    ptr: DevicePtr,
    /// Its size class; 0 for no memory at all.
    class: usize,
}

impl Buffer {
    pub(crate) fn alloc(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let class = if bytes == 0 { 0 } else { size_class(bytes) };
        let ptr = if class == 0 {
            DevicePtr::NULL
        } else {
            context.alloc(class)?
        };
        Ok(Self {
            context: Arc::clone(context),
            ptr,
            class,
        })
    }

    pub(crate) fn ptr(&self) -> DevicePtr {
        self.ptr
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.class == 0 {
            return;
        }
        // Calls take effect in order, so that whoever gets it next writes after what still reads it.
        let mut cache = self.context.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.stats.live_bytes -= self.class as u64;
        cache.stats.live_buffers -= 1;
        cache.stats.cached_bytes += self.class as u64;
        cache.free.entry(self.class).or_default().push(self.ptr);
    }
}

impl Context {
    fn alloc(&self, class: usize) -> Result<DevicePtr> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = cache.free.get_mut(&class).and_then(Vec::pop);
        let ptr = match kept {
            Some(ptr) => {
                cache.stats.cached_bytes -= class as u64;
                cache.stats.reuses += 1;
                ptr
            }
            None => {
                cache.stats.allocations += 1;
                match self.driver.alloc(class) {
                    Err(error) if error.kind() == ErrorKind::OutOfMemory && cache.stats.cached_bytes > 0 => {
                        self.flush(&mut cache);
                        cache.stats.flushes += 1;
                        self.driver.alloc(class)?
                    }
                    other => other?,
                }
            }
        };
        cache.stats.live_bytes += class as u64;
        cache.stats.live_buffers += 1;
        cache.stats.peak_bytes = cache.stats.peak_bytes.max(cache.stats.live_bytes);
        Ok(ptr)
    }

    fn flush(&self, cache: &mut Cache) {
        for ptr in std::mem::take(&mut cache.free).into_values().flatten() {
            if self.driver.free(ptr).is_err() {
                cache.stats.failed_frees += 1;
            }
        }
        cache.stats.cached_bytes = 0;
    }

    /// Gives the memory that no tensor has back to the driver.
    pub(crate) fn release(&self) {
        self.flush(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn memory(&self) -> MemoryStats {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).stats
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn size_classes_waste_little() {
        for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, 123_456_789]) {
            let class = size_class(bytes);
            assert!(class >= bytes && class.is_multiple_of(256), "{bytes} {class}");
            assert!(class <= (bytes + bytes / 4).max(bytes + 255), "{bytes} {class}");
            assert_eq!(size_class(class), class);
        }
        assert_eq!(size_class(usize::MAX), usize::MAX);
    }
}
