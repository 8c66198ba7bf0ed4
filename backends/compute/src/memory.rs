//! Device memory, which is cached for the next tensor of its size class.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use polygrad_core::compute::DevicePtr;
use polygrad_core::{ErrorKind, Result};

use crate::Context;

/// Memory counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes of live tensors and of recordings.
    pub live_bytes: u64,
    /// The most [`MemoryStats::live_bytes`] so far.
    pub peak_bytes: u64,
    /// Bytes that are cached for later tensors.
    pub cached_bytes: u64,
    /// Buffers of live tensors.
    pub live_buffers: u64,
    /// Allocations by the driver.
    pub allocations: u64,
    /// Allocations from the cache.
    pub reuses: u64,
    /// How often the cache was returned to the driver because the driver was out of memory.
    pub flushes: u64,
    /// Buffers that the driver failed to free.
    pub failed_frees: u64,
}

/// Freed buffers by size class.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    free: BTreeMap<usize, Vec<DevicePtr>>,
    stats: MemoryStats,
}

/// The size that is allocated for `bytes`: four classes per power of two, so that from 1 KiB on at most a fifth is
/// wasted.
fn size_class(bytes: usize) -> usize {
    const SMALLEST: usize = 256;
    let bytes = bytes.max(SMALLEST);
    let step = ((1 << bytes.ilog2()) / 4).max(SMALLEST);
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

/// Memory reserved for one recording, which uses the same memory in each replay.
#[derive(Debug)]
pub(crate) struct Arena {
    context: Arc<Context>,
    free: Mutex<BTreeMap<usize, Vec<DevicePtr>>>,
}

thread_local! {
    /// The source of this thread's buffers instead of the cache.
    static ARENA: RefCell<Option<Arc<Arena>>> = const { RefCell::new(None) };
}

impl Arena {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            free: Mutex::default(),
        })
    }

    /// Runs `f` with buffers from the arena.
    pub(crate) fn within<T>(self: &Arc<Self>, f: impl FnOnce() -> T) -> T {
        struct Back(Option<Arc<Arena>>);
        impl Drop for Back {
            fn drop(&mut self) {
                ARENA.set(self.0.take());
            }
        }
        let _back = Back(ARENA.replace(Some(Arc::clone(self))));
        f()
    }

    /// This thread's arena, if it belongs to the device.
    fn of(context: &Arc<Context>) -> Option<Arc<Self>> {
        let is_of = |arena: &&Arc<Self>| Arc::ptr_eq(&arena.context, context);
        ARENA.with_borrow(|arena| arena.as_ref().filter(is_of).cloned())
    }

    fn take(&self, class: usize) -> Option<DevicePtr> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.get_mut(&class).and_then(Vec::pop)
    }

    fn give(&self, class: usize, ptr: DevicePtr) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(class).or_default().push(ptr);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let free = std::mem::take(&mut *self.free.lock().unwrap_or_else(PoisonError::into_inner));
        for (class, ptrs) in free {
            for ptr in ptrs {
                self.context.keep(class, ptr);
            }
        }
    }
}

/// Device memory, which is returned to its source when the last tensor over it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    context: Arc<Context>,
    ptr: DevicePtr,
    /// Its size class; 0 if there is no memory.
    class: usize,
    arena: Option<Arc<Arena>>,
}

impl Buffer {
    pub(crate) fn alloc(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let class = if bytes == 0 { 0 } else { size_class(bytes) };
        let arena = Arena::of(context).filter(|_| class > 0);
        let kept = arena.as_ref().and_then(|arena| arena.take(class));
        let ptr = match kept {
            Some(ptr) => ptr,
            None if class == 0 => DevicePtr::NULL,
            None => context.alloc(class)?,
        };
        Ok(Self {
            context: Arc::clone(context),
            ptr,
            class,
            arena,
        })
    }

    pub(crate) fn ptr(&self) -> DevicePtr {
        self.ptr
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Calls take effect in order, so the next user's writes come after the last reads of this one.
        match &self.arena {
            Some(arena) => arena.give(self.class, self.ptr),
            None if self.class == 0 => {}
            None => self.context.keep(self.class, self.ptr),
        }
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

    /// Returns memory without tensors to the cache.
    fn keep(&self, class: usize, ptr: DevicePtr) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.stats.live_bytes -= class as u64;
        cache.stats.live_buffers -= 1;
        cache.stats.cached_bytes += class as u64;
        cache.free.entry(class).or_default().push(ptr);
    }

    fn flush(&self, cache: &mut Cache) {
        for ptr in std::mem::take(&mut cache.free).into_values().flatten() {
            if self.driver.free(ptr).is_err() {
                cache.stats.failed_frees += 1;
            }
        }
        cache.stats.cached_bytes = 0;
    }

    /// Returns the cached memory to the driver.
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
