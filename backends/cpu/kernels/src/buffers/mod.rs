//! Memory for tensors: reference-counted blocks, which are reused while they are still in the processor's cache.
//!
//! A block is one allocation, 64-byte aligned: a header of two cache lines, followed by the data. Blocks come in size
//! classes, four per doubling, so that at most a fifth of a block is unused. A freed block goes to a stack of its
//! class, and the next request takes the most recently freed one. A thread has its own lock-free stacks for blocks that
//! it took itself, up to 16 MiB; all other blocks are on stacks that all threads share. Contents are never cleared.

mod cache;
mod sentinel;
mod slab;
#[cfg(test)]
mod tests;
mod timing;

use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use cache::{LIVE, LOCAL, Local, PEAK, RETIRED, SHARED, SLOTS, count_live, lock, taken};
use polygrad_core::{Error, ErrorKind, HostBytes, Result, Shape};

pub use sentinel::verdict;
pub use timing::{PoolTime, time_pool};

/// Alignment of header and data: a cache line, and the widest vector register.
const ALIGN: usize = 64;

/// The size of the huge pages of which large blocks consist, if the system has them.
const HUGE_PAGE: usize = 2 << 20;

/// The least bytes of a block that requests huge pages.
const LARGE: usize = 2 * HUGE_PAGE;

/// The number of size classes for which each thread has its own stacks: up to 1 MiB.
const LOCAL_CLASSES: usize = 52;

const CLASSES: usize = 4 * 58;

/// Replaces the class in a buffer over foreign memory.
const FOREIGN: u8 = u8::MAX;

/// The counters of the buffer pool, for the whole process. Bytes are counted in whole size classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes in use.
    pub live_bytes: usize,
    /// The most bytes in use at the same time since the start or [`reset_peak`]; too low by at most 64 KiB per thread.
    pub peak_bytes: usize,
    /// Bytes that are kept for reuse.
    pub cached_bytes: usize,
    /// Blocks handed out since the start.
    pub allocations: u64,
    /// The number of these that were taken from the cache.
    pub reuses: u64,
}

/// Reads the counters.
pub fn stats() -> MemoryStats {
    let slots = lock(&SLOTS);
    let mut live = LIVE.load(Ordering::Relaxed);
    let mut cached = lock(&SHARED).bytes;
    let mut reuses = RETIRED.reuses.load(Ordering::Relaxed);
    let mut fresh = RETIRED.fresh.load(Ordering::Relaxed);
    for slot in slots.iter() {
        live += slot.unreported.load(Ordering::Relaxed);
        cached += slot.cached.load(Ordering::Relaxed);
        reuses += slot.reuses.load(Ordering::Relaxed);
        fresh += slot.fresh.load(Ordering::Relaxed);
    }
    let live_bytes = live.max(0).cast_unsigned();
    MemoryStats {
        live_bytes,
        peak_bytes: PEAK.load(Ordering::Relaxed).max(live).max(0).cast_unsigned(),
        cached_bytes: cached,
        allocations: reuses + fresh,
        reuses,
    }
}

/// Restarts the peak at the bytes in use now.
pub fn reset_peak() {
    let live = stats().live_bytes;
    PEAK.store(live.cast_signed(), Ordering::Relaxed);
}

/// Returns the cached blocks of the calling thread, and those shared by all threads, to the system. Other threads keep
/// theirs, at most 16 MiB each.
pub fn flush() {
    let _ = LOCAL.try_with(Local::flush);
    lock(&SHARED).flush();
}

/// Limits the bytes that are cached for all threads together, in addition to the 16 MiB of each thread. Default: 1 GiB.
pub fn set_limit(bytes: usize) {
    let mut shared = lock(&SHARED);
    shared.limit = bytes;
    if shared.bytes > bytes {
        shared.flush();
    }
}

/// A reference-counted block of memory. Dropping the last handle returns it to the pool.
///
/// The bytes are uninitialized at first. A writer must hold the only handle ([`Buffer::is_unique`]) or exclude readers
/// by other means; therefore access is by raw pointers.
pub struct Buffer(NonNull<Header>);

#[repr(C, align(64))]
struct Header {
    refs: AtomicUsize,
    class: u8,
    /// The thread that took the block last.
    taker: Cell<u32>,
    /// The first byte: directly after the header, or in memory that `owner` holds.
    data: *mut u8,
    /// The next lower block on the stack, while the block is free.
    next: Cell<*mut Header>,
    /// Foreign memory that the buffer shares, and its size; the block itself is then empty.
    owner: Option<(Arc<dyn HostBytes>, usize)>,
    /// The shape of the tensor that the block was handed out for; written before there is a second handle.
    shape: UnsafeCell<Shape>,
}

const _: () = assert!(size_of::<Header>() <= 2 * ALIGN);
const _: () = assert!(CLASSES <= FOREIGN as usize);

// SAFETY: the count is atomic. `next` and `taker` are accessed only by the one owner of a free block. `shape` is
// written only by the first handle, before there is another. The bytes are accessed only through raw pointers, whose
// users must prevent races.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A block of at least `bytes` bytes, uninitialized, 64-byte aligned.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the system has no such block even after the cache was flushed.
    #[inline]
    pub fn alloc(bytes: usize) -> Result<Self> {
        let buffer = Self::block(bytes.saturating_add(2 * sentinel::ROOM))?;
        if cfg!(feature = "sentinels") {
            // SAFETY: the block is new, and large enough for both fences.
            unsafe { sentinel::raise(buffer.as_ptr(), bytes) };
        }
        Ok(buffer)
    }

    #[inline]
    fn block(bytes: usize) -> Result<Self> {
        let class = class_of(bytes);
        if !timing::is_on()
            && let Some(block) = Self::of_thread(class)
        {
            return Ok(block);
        }
        Self::alloc_slow(bytes, class)
    }

    /// A block from this thread's cache.
    #[inline]
    fn of_thread(class: usize) -> Option<Self> {
        if class >= LOCAL_CLASSES {
            return None;
        }
        let header = LOCAL.try_with(|local| local.pop(class)).ok()??;
        // SAFETY: a free block that was just popped has no other user.
        unsafe { header.as_ref() }.refs.store(1, Ordering::Relaxed);
        Some(Self(header))
    }

    /// [`Buffer::alloc`] for the elements of a tensor, whose shape the buffer keeps.
    ///
    /// # Errors
    /// Those of [`Buffer::alloc`].
    #[inline]
    pub fn alloc_for(shape: Shape, bytes: usize) -> Result<Self> {
        Self::alloc(bytes).map(|buffer| buffer.with_shape(shape))
    }

    #[inline]
    fn with_shape(self, shape: Shape) -> Self {
        // SAFETY: the handle was just made and is the only one.
        unsafe { *self.header().shape.get() = shape };
        self
    }

    /// The shape that the buffer was allocated for; meaningless for a buffer without a tensor.
    #[inline]
    pub fn shape(&self) -> &Shape {
        // SAFETY: written only before there was a second handle.
        unsafe { &*self.header().shape.get() }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(bytes: usize, class: usize) -> Result<Self> {
        if !timing::is_on() {
            return Self::of_all(bytes, class);
        }
        timing::alloc(class, || {
            Self::of_thread(class).map_or_else(|| Self::of_all(bytes, class), Ok)
        })
    }

    /// A block from the shared cache, or a new one.
    fn of_all(bytes: usize, class: usize) -> Result<Self> {
        // Above this, the class size would not fit a usize.
        if bytes > isize::MAX.cast_unsigned() {
            return Err(out_of_memory(bytes));
        }
        let reused = lock(&SHARED).pop(class);
        let header = match reused {
            Some(header) => header,
            None => system_alloc(class)
                .or_else(|| {
                    flush();
                    system_alloc(class)
                })
                .ok_or_else(|| out_of_memory(bytes))?,
        };
        // SAFETY: a block that was just popped or allocated has no other user, and its header is initialized.
        let block = unsafe { header.as_ref() };
        block.refs.store(1, Ordering::Relaxed);
        taken(block, class, reused.is_some());
        Ok(Self(header))
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.header().data
    }

    /// A buffer for a tensor over foreign memory, without a copy. It is never unique, since it is read-only.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn share(shape: Shape, owner: Arc<dyn HostBytes>) -> Result<Self> {
        let bytes = owner.bytes();
        let (data, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        let buffer = Self::block(0)?;
        // SAFETY: the block was just handed out and has no other user.
        unsafe {
            let header = &mut *buffer.0.as_ptr();
            header.class = FOREIGN;
            header.data = data;
            header.owner = Some((owner, len));
        }
        Ok(buffer.with_shape(shape))
    }

    /// The bytes that the buffer holds, at least the requested number.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        let header = self.header();
        match &header.owner {
            Some((_, bytes)) => *bytes,
            None => class_bytes(header.class.into()) - 2 * sentinel::ROOM,
        }
    }

    /// Whether this is the only handle, so that its holder may write. Writes through earlier handles are then visible.
    #[inline]
    pub fn is_unique(&self) -> bool {
        let header = self.header();
        header.refs.load(Ordering::Acquire) == 1 && header.class != FOREIGN
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as any handle.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Self {
        // The count could only overflow with more handles than fit in memory, since each is one pointer. Leaking
        // handles on purpose to overflow it would take centuries.
        self.header().refs.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let header = self.header();
        // With a single handle no other thread can change the count, and a plain load is cheaper than a locked
        // subtraction.
        if header.refs.load(Ordering::Acquire) != 1 {
            if header.refs.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        let class = header.class;
        if cfg!(feature = "sentinels") && class != FOREIGN {
            // SAFETY: this was the last handle, and `alloc` has placed the fences.
            unsafe { sentinel::inspect(header.data) };
        }
        if timing::is_on() || !keep(self.0, class.into()) {
            free_slow(self.0, class);
        }
    }
}

/// Keeps the block, which has no user left, in this thread's cache if possible; returns whether it did.
#[inline]
fn keep(header: NonNull<Header>, class: usize) -> bool {
    class < LOCAL_CLASSES && LOCAL.try_with(|local| local.push(header, class)).unwrap_or(false)
}

#[cold]
#[inline(never)]
fn free_slow(header: NonNull<Header>, class: u8) {
    if class == FOREIGN {
        return free_foreign(header);
    }
    let class = class.into();
    let share = || {
        count_live(-class_bytes(class).cast_signed());
        lock(&SHARED).push(header, class);
    };
    if !timing::is_on() {
        return share();
    }
    timing::free(|| {
        if !keep(header, class) {
            share();
        }
    });
}

/// Lets go of foreign memory, and makes the header a block of class 0 again, which it was.
fn free_foreign(header: NonNull<Header>) {
    let block = header.as_ptr();
    // SAFETY: the last handle is gone.
    let owner = unsafe {
        (*block).class = 0;
        (*block).data = own_data(header);
        (*block).owner.take()
    };
    if timing::is_on() || !keep(header, 0) {
        free_slow(header, 0);
    }
    drop(owner);
}

/// The first byte behind a header, and behind the room of a fence.
fn own_data(header: NonNull<Header>) -> *mut u8 {
    header
        .as_ptr()
        .wrapping_add(1)
        .cast::<u8>()
        .wrapping_add(sentinel::ROOM)
}

/// The smallest class whose blocks hold `bytes`.
#[inline]
fn class_of(bytes: usize) -> usize {
    let units = bytes.saturating_sub(1) / ALIGN;
    if units < 4 {
        return units;
    }
    let log = units.ilog2() as usize;
    4 * (log - 1) + ((units >> (log - 2)) & 3)
}

/// The size of a block of a class: 64, 128, 192, 256, 320, 384, 448, 512, 640 … bytes.
#[inline]
fn class_bytes(class: usize) -> usize {
    if class < 4 {
        return (class + 1) * ALIGN;
    }
    ((class & 3) + 5) << (class / 4 - 1) << ALIGN.trailing_zeros()
}

fn system_layout(class: usize) -> Option<Layout> {
    let bytes = class_bytes(class).checked_add(size_of::<Header>())?;
    let align = if bytes < LARGE { ALIGN } else { HUGE_PAGE };
    Layout::from_size_align(bytes, align).ok()
}

fn system_alloc(class: usize) -> Option<NonNull<Header>> {
    let layout = system_layout(class)?;
    // SAFETY: the layout has a size above zero.
    let header = NonNull::new(unsafe { alloc(layout) }.cast::<Header>())?;
    #[cfg(all(target_os = "linux", not(miri)))]
    if layout.size() >= LARGE {
        // Only whole huge pages, all of whose memory is needed anyway. This is advice that the system may ignore.
        // SAFETY: the pages are part of the block, and their contents stay.
        let _ = unsafe {
            rustix::mm::madvise(
                header.as_ptr().cast(),
                layout.size() / HUGE_PAGE * HUGE_PAGE,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
    // SAFETY: the memory is ours, aligned and large enough for a header.
    unsafe {
        header.write(Header {
            refs: AtomicUsize::new(1),
            class: class as u8,
            taker: Cell::new(0),
            data: own_data(header),
            next: Cell::new(null_mut()),
            owner: None,
            shape: UnsafeCell::new(Shape::SCALAR),
        });
    }
    Some(header)
}

/// # Safety
/// The block must come from [`system_alloc`] and have no user left.
unsafe fn system_free(header: NonNull<Header>) {
    // SAFETY: the caller owns the block, so its header may be read.
    let class = unsafe { header.as_ref() }.class.into();
    if let Some(layout) = system_layout(class) {
        // SAFETY: allocated by `system_alloc` with this same layout.
        unsafe { dealloc(header.as_ptr().cast(), layout) };
    }
}

#[cold]
fn out_of_memory(bytes: usize) -> Error {
    Error::new(
        ErrorKind::OutOfMemory,
        format!(
            "the system has no {bytes} bytes ({:.1} GiB) of memory left",
            bytes as f64 / (1u64 << 30) as f64
        ),
    )
    .with_hint("use a smaller batch, or drop tensors that are not needed any more")
}
