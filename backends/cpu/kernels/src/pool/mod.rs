//! A persistent thread pool for work of a few microseconds.
//!
//! Workers spin for a while after their last task and then sleep. So back-to-back ops go parallel in well under a
//! microsecond, while an idle process costs nothing. The calling thread takes chunks too. Chunks are claimed one by
//! one, so a worker that the system has descheduled delays at most one chunk. The caller claims from the start and
//! workers from the end, so that a thread finds in its cache what it wrote in the op before.

#[cfg(all(target_os = "linux", not(miri)))]
mod placement;
#[cfg(not(all(target_os = "linux", not(miri))))]
#[path = "anywhere.rs"]
mod placement;

use std::any::Any;
use std::cell::Cell;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use placement::Placement;

/// How long a thread spins before it sleeps: longer than the gap between two ops of a training step, and too short to
/// matter to other processes.
const SPIN: Duration = Duration::from_micros(40);

/// Spins between two reads of the clock.
const SPINS_PER_LOOK: u32 = 64;

thread_local! {
    /// Always set on workers, and on a caller while its own job runs: nested calls then run inline.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A pool of worker threads that run borrowed closures.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let pool = polygrad_cpu_kernels::ThreadPool::new(2);
/// let sum = AtomicUsize::new(0);
/// pool.run(100, |i| {
///     sum.fetch_add(i, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A pool of `threads` threads, including the caller: `threads - 1` workers are started.
    ///
    /// If the system refuses to start a thread, the pool works with those it has, even with none;
    /// [`ThreadPool::threads`] returns their number. Zero counts as one.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let mut workers = Vec::new();
        for i in 1..threads {
            let shared = Arc::clone(&shared);
            let started = std::thread::Builder::new()
                .name(format!("polygrad-cpu-{i}"))
                .spawn(move || shared.work());
            match started {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        Self { shared, workers }
    }

    /// Number of threads that work on a job, the caller included.
    #[inline]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(0)` … `task(chunks - 1)`, each once, in any order, on any of the threads. Returns when all are done.
    ///
    /// Runs inline on the calling thread if there is one chunk or no worker, if called from inside a task, or if
    /// another thread is using the pool.
    ///
    /// # Panics
    /// If a task panics: the first panic resumes in the caller once all chunks are done.
    #[inline]
    pub fn run<F: Fn(usize) + Sync>(&self, chunks: usize, task: F) {
        self.run_dyn(chunks, &task);
    }

    /// [`ThreadPool::run`], compiled once.
    pub fn run_dyn(&self, chunks: usize, task: Task<'_>) {
        let inline = |chunks| (0..chunks).for_each(task);
        let Ok(count) = u32::try_from(chunks) else {
            return inline(chunks);
        };
        if chunks <= 1 || self.workers.is_empty() || INSIDE.get() || !self.shared.claim() {
            return inline(chunks);
        }
        self.shared.run(count, task, self.workers.len());
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.lock());
        self.shared.work_ready.notify_all();
        let me = std::thread::current().id();
        for worker in self.workers.drain(..) {
            // A task on a worker of this pool may drop the last handle, and a worker cannot join itself.
            if worker.thread().id() != me {
                let _ = worker.join();
            }
        }
    }
}

/// Number of threads that this process may run at once, or 1 if the system does not tell. It is the number at the first
/// call, since on Linux it comes from files that take longer to read than a small model takes to run.
pub fn available_threads() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// The function that is called with the number of each chunk.
type Task<'a> = &'a (dyn Fn(usize) + Sync + 'a);

/// The current job, on the caller's stack until its last chunk is done.
struct Job<'a> {
    task: Task<'a>,
}

/// A cache line of its own, so that threads that spin on one field do not slow down writes to another.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

#[derive(Default)]
struct Shared {
    /// Unclaimed chunks, see [`Unclaimed`]. A thread that takes a chunk out owns that chunk of the current job.
    unclaimed: Line<AtomicU64>,
    /// Number of chunks that are not done.
    unfinished: Line<AtomicUsize>,
    /// The current job. Valid for owners of a chunk until that chunk is counted as done.
    job: AtomicPtr<Job<'static>>,
    /// Whether a caller is using the pool.
    busy: AtomicBool,
    stop: AtomicBool,
    placement: Placement,
    /// Number of workers that sleep or are about to.
    sleepers: AtomicUsize,
    /// Whether the caller sleeps, or is about to.
    caller_sleeps: AtomicBool,
    /// The first panic of the current job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleep: Mutex<()>,
    work_ready: Condvar,
    work_done: Condvar,
}

/// The chunks from the first number up to, but not including, the second.
#[derive(Clone, Copy)]
struct Unclaimed(u32, u32);

impl Unclaimed {
    fn from_bits(bits: u64) -> Self {
        Self((bits >> 32) as u32, bits as u32)
    }

    fn bits(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.1)
    }

    fn is_empty(self) -> bool {
        self.0 == self.1
    }

    /// Takes out the first or the last chunk.
    fn take(self, end: End) -> Option<(Self, usize)> {
        let Self(first, past) = self;
        match end {
            _ if self.is_empty() => None,
            End::First => Some((Self(first + 1, past), first as usize)),
            End::Last => Some((Self(first, past - 1), past as usize - 1)),
        }
    }
}

/// The end from which a thread claims chunks.
#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

impl Shared {
    fn claim(&self) -> bool {
        !self.busy.load(Ordering::Relaxed) && !self.busy.swap(true, Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job; the caller of this function has claimed the pool.
    fn run(&self, count: u32, task: Task<'_>, workers: usize) {
        let chunks = count as usize;
        let job = Job { task };
        INSIDE.set(true);
        // The lifetime is erased: no thread accesses the job after its last chunk is done.
        let erased = std::ptr::from_ref(&job).cast_mut().cast();
        self.job.store(erased, Ordering::Relaxed);
        self.unfinished.0.store(chunks, Ordering::Relaxed);
        // Publishes the job: a thread that claims a chunk reads this store or one that follows it in its release
        // sequence.
        self.unclaimed.0.store(Unclaimed(0, count).bits(), Ordering::SeqCst);
        // A worker announces its sleep before it checks for work a last time, so either it or this thread sees the
        // other.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.placement.caller_is_here();
            drop(self.lock());
            if chunks > workers {
                self.work_ready.notify_all();
            } else {
                (1..chunks).for_each(|_| self.work_ready.notify_one());
            }
        }
        self.help(End::First);
        self.wait_until_done();
        INSIDE.set(false);
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Claims chunks and runs them until none is left.
    fn help(&self, end: End) {
        let mut bits = self.unclaimed.0.load(Ordering::Relaxed);
        while let Some((left, chunk)) = Unclaimed::from_bits(bits).take(end) {
            let claimed =
                self.unclaimed
                    .0
                    .compare_exchange_weak(bits, left.bits(), Ordering::AcqRel, Ordering::Relaxed);
            if let Err(now) = claimed {
                bits = now;
                continue;
            }
            let job = self.job.load(Ordering::Relaxed);
            // SAFETY: this thread owns a chunk of the current job and has not counted it as done, so the
            // caller is still inside `run`, where `job` and the closure it borrows live. The acquire above makes
            // both visible. The closure is `Sync`.
            let result = catch_unwind(AssertUnwindSafe(|| unsafe {
                ((*job).task)(chunk);
            }));
            if let Err(panic) = result {
                let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
                if first.is_none() {
                    *first = Some(panic);
                } else {
                    // The payload's destructor is the user's and may panic too, which must not happen on this thread.
                    std::mem::forget(panic);
                }
            }
            // From here on the job may have been dropped.
            if self.unfinished.0.fetch_sub(1, Ordering::SeqCst) == 1 && self.caller_sleeps.load(Ordering::SeqCst) {
                drop(self.lock());
                self.work_done.notify_one();
            }
            bits = self.unclaimed.0.load(Ordering::Relaxed);
        }
    }

    fn wait_until_done(&self) {
        let done = || self.unfinished.0.load(Ordering::Acquire) == 0;
        if spin_until(done) {
            return;
        }
        self.caller_sleeps.store(true, Ordering::SeqCst);
        let mut guard = self.lock();
        while self.unfinished.0.load(Ordering::SeqCst) != 0 {
            guard = self.work_done.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.caller_sleeps.store(false, Ordering::SeqCst);
        self.placement.caller_is_here();
    }

    /// The main loop of a worker.
    fn work(&self) {
        INSIDE.set(true);
        self.placement.add_worker();
        let ready = || {
            let unclaimed = Unclaimed::from_bits(self.unclaimed.0.load(Ordering::SeqCst));
            !unclaimed.is_empty() || self.stop.load(Ordering::SeqCst)
        };
        loop {
            if !spin_until(ready) {
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                let mut guard = self.lock();
                while !ready() {
                    guard = self.work_ready.wait(guard).unwrap_or_else(PoisonError::into_inner);
                }
                drop(guard);
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            self.help(End::Last);
        }
    }
}

/// Spins until `condition` holds, and returns whether it did within [`SPIN`].
fn spin_until(condition: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..SPINS_PER_LOOK {
            if condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return condition();
        }
    }
}
