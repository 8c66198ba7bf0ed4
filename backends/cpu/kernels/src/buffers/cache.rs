//! The cache of free blocks: stacks of each thread, stacks that all threads share, and the counters.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{CLASSES, Header, LOCAL_CLASSES, class_bytes, system_free};

/// The most bytes that one thread keeps for itself.
const LOCAL_LIMIT: usize = 16 << 20;

/// The most bytes on the shared stacks, unless [`set_limit`](super::set_limit) changes it.
const DEFAULT_LIMIT: usize = 1 << 30;

/// The live bytes that a thread counts on its own before it reports them, which bounds the error of the peak.
const REPORT_BYTES: isize = 64 << 10;

/// A stack of free blocks, linked through their headers.
struct Stack(*mut Header);

impl Stack {
    const EMPTY: Self = Self(null_mut());

    #[inline]
    fn push(&mut self, block: NonNull<Header>) {
        // SAFETY: the caller owns the block, and passes it to the stack.
        unsafe { block.as_ref() }.next.set(self.0);
        self.0 = block.as_ptr();
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Header>> {
        let top = NonNull::new(self.0)?;
        // SAFETY: blocks on the stack are valid and owned by it.
        self.0 = unsafe { top.as_ref() }.next.get();
        Some(top)
    }

    fn free_all(&mut self) {
        while let Some(block) = self.pop() {
            // SAFETY: the block is free, and off the stack now.
            unsafe { system_free(block) };
        }
    }
}

/// The stacks of one thread.
pub(super) struct Local {
    stacks: Cell<[Stack; LOCAL_CLASSES]>,
    /// The number of this thread.
    thread: u32,
    pub(super) counts: Arc<Slot>,
}

/// The counters of one thread. Only that thread writes them, so that plain loads and stores suffice.
#[derive(Default)]
pub(super) struct Slot {
    /// Live bytes, positive or negative, that are not in [`LIVE`] yet.
    pub(super) unreported: AtomicIsize,
    pub(super) cached: AtomicUsize,
    /// Blocks handed out: reused ones, and new ones.
    pub(super) reuses: AtomicU64,
    pub(super) fresh: AtomicU64,
}

impl Local {
    fn new() -> Self {
        let counts = Arc::new(Slot::default());
        lock(&SLOTS).push(Arc::clone(&counts));
        Self {
            stacks: Cell::new([const { Stack::EMPTY }; LOCAL_CLASSES]),
            thread: THREADS.fetch_add(1, Ordering::Relaxed),
            counts,
        }
    }

    #[inline]
    fn stack(&self, class: usize) -> &Cell<Stack> {
        &self.stacks.as_array_of_cells()[class]
    }

    #[inline]
    pub(super) fn pop(&self, class: usize) -> Option<NonNull<Header>> {
        let cell = self.stack(class);
        let mut stack = cell.replace(Stack::EMPTY);
        let block = stack.pop();
        cell.set(stack);
        if block.is_some() {
            let bytes = class_bytes(class);
            let counts = &*self.counts;
            add(&counts.cached, bytes.wrapping_neg());
            counts
                .reuses
                .store(counts.reuses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            counts.count_live(bytes.cast_signed());
        }
        block
    }

    /// Keeps a block, if this thread took it. Otherwise, a thread that frees blocks taken by others would hoard them.
    #[inline]
    pub(super) fn push(&self, block: NonNull<Header>, class: usize) -> bool {
        let bytes = class_bytes(class);
        let counts = &*self.counts;
        // SAFETY: the caller owns the block.
        let taker = unsafe { block.as_ref() }.taker.get();
        if taker != self.thread || counts.cached.load(Ordering::Relaxed) + bytes > LOCAL_LIMIT {
            return false;
        }
        let cell = self.stack(class);
        let mut stack = cell.replace(Stack::EMPTY);
        stack.push(block);
        cell.set(stack);
        add(&counts.cached, bytes);
        counts.count_live(-bytes.cast_signed());
        true
    }

    pub(super) fn flush(&self) {
        for cell in self.stacks.as_array_of_cells() {
            cell.replace(Stack::EMPTY).free_all();
        }
        self.counts.cached.store(0, Ordering::Relaxed);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.flush();
        let mut slots = lock(&SLOTS);
        slots.retain(|slot| !Arc::ptr_eq(slot, &self.counts));
        report_live(self.counts.unreported.load(Ordering::Relaxed));
        for (all, own) in [
            (&RETIRED.reuses, &self.counts.reuses),
            (&RETIRED.fresh, &self.counts.fresh),
        ] {
            all.fetch_add(own.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Slot {
    #[inline]
    fn count_live(&self, bytes: isize) {
        let unreported = self.unreported.load(Ordering::Relaxed) + bytes;
        if unreported.abs() < REPORT_BYTES {
            self.unreported.store(unreported, Ordering::Relaxed);
        } else {
            self.unreported.store(0, Ordering::Relaxed);
            report_live(unreported);
        }
    }
}

/// Adds to a counter that only the calling thread writes.
#[inline]
fn add(counter: &AtomicUsize, n: usize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

fn report_live(bytes: isize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if live > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

pub(super) fn count_live(bytes: isize) {
    if LOCAL.try_with(|local| local.counts.count_live(bytes)).is_err() {
        report_live(bytes);
    }
}

/// Counts a block that the calling thread got from the shared stacks or the system, and records this thread as its
/// taker.
pub(super) fn taken(block: &Header, class: usize, reused: bool) {
    count_live(class_bytes(class).cast_signed());
    let count = |slot: &Slot| {
        let counter = if reused { &slot.reuses } else { &slot.fresh };
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let count_own = |local: &Local| {
        count(&local.counts);
        block.taker.set(local.thread);
    };
    if LOCAL.try_with(count_own).is_err() {
        count(&RETIRED);
    }
}

/// The stacks that all threads share.
pub(super) struct Shared {
    stacks: [Stack; CLASSES],
    pub(super) bytes: usize,
    pub(super) limit: usize,
}

// SAFETY: the stacks own their blocks, which any thread may use.
unsafe impl Send for Shared {}

impl Shared {
    pub(super) fn pop(&mut self, class: usize) -> Option<NonNull<Header>> {
        let block = self.stacks[class].pop()?;
        self.bytes -= class_bytes(class);
        Some(block)
    }

    pub(super) fn push(&mut self, block: NonNull<Header>, class: usize) {
        let bytes = class_bytes(class);
        if self.bytes + bytes > self.limit {
            // The sizes in use have changed: the cached blocks are of sizes used earlier.
            self.flush();
            if bytes > self.limit {
                // SAFETY: the block has no user left.
                unsafe { system_free(block) };
                return;
            }
        }
        self.stacks[class].push(block);
        self.bytes += bytes;
    }

    pub(super) fn flush(&mut self) {
        self.stacks.iter_mut().for_each(Stack::free_all);
        self.bytes = 0;
    }
}

thread_local! {
    pub(super) static LOCAL: Local = Local::new();
}

pub(super) static SHARED: Mutex<Shared> = Mutex::new(Shared {
    stacks: [const { Stack::EMPTY }; CLASSES],
    bytes: 0,
    limit: DEFAULT_LIMIT,
});

/// The number of threads so far.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// The counters of running threads. If [`SHARED`] is locked too, this lock comes first.
pub(super) static SLOTS: Mutex<Vec<Arc<Slot>>> = Mutex::new(Vec::new());

/// The counters of threads that have ended.
pub(super) static RETIRED: Slot = Slot {
    unreported: AtomicIsize::new(0),
    cached: AtomicUsize::new(0),
    reuses: AtomicU64::new(0),
    fresh: AtomicU64::new(0),
};

pub(super) static LIVE: AtomicIsize = AtomicIsize::new(0);
pub(super) static PEAK: AtomicIsize = AtomicIsize::new(0);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
