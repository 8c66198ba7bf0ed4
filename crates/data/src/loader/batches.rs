//! A loop over batches.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use polygrad_core::{Error, ErrorKind, Result, panic_message};

use super::{Batch, DataLoader, plan};

/// The remaining batches of an epoch; see [`DataLoader`]. Dropping it ends its threads.
pub struct Batches<'a, T> {
    loader: &'a DataLoader<T>,
    work: Work<T>,
    /// The epoch whose batches these are.
    epoch: u64,
}

/// Where the batches are made.
enum Work<T> {
    /// In the thread that asks for them.
    Here(plan::Batches<T>),
    Workers(Workers<T>),
    /// Nowhere, after the end or an error, which is here until it has been returned.
    Ended(Option<Error>),
}

/// A finished batch, and the loader's position once it has been taken.
type Made<T> = (Result<T>, u64);

struct Workers<T> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<T> {
    /// The worker that holds this lock takes the next batch to be made; streams are read meanwhile.
    next: Mutex<plan::Batches<T>>,
    progress: Mutex<Progress<T>>,
    changed: Condvar,
    prefetch: u64,
}

struct Progress<T> {
    /// Number of batches that workers have begun.
    begun: u64,
    /// Number of batches that the loop has taken.
    taken: u64,
    ready: BTreeMap<u64, Made<T>>,
    /// Total number of batches, once it is known.
    count: Option<u64>,
    stopped: bool,
}

impl<'a, T: Send + 'static> Batches<'a, T> {
    pub(super) fn new(loader: &'a DataLoader<T>) -> Self {
        let work = match loader.started() {
            Ok(batches) if loader.workers == 0 => Ok(Work::Here(batches)),
            Ok(batches) => Workers::start(batches, loader.workers, loader.prefetch as u64).map(Work::Workers),
            Err(error) => Err(error),
        };
        let work = work.unwrap_or_else(|error| Work::Ended(Some(error)));
        Self {
            loader,
            work,
            epoch: loader.state().epoch,
        }
    }
}

impl<T: Send + 'static> Iterator for Batches<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let made = match &mut self.work {
            Work::Here(batches) => batches.next().map(make),
            Work::Workers(workers) => workers.shared.take(),
            Work::Ended(error) => return error.take().map(Err),
        };
        let mut state = self.loader.lock();
        match made {
            Some((Ok(batch), position)) => {
                (state.epoch, state.position) = (self.epoch, position);
                Some(Ok(batch))
            }
            Some((Err(error), _)) => {
                self.work = Work::Ended(None);
                Some(Err(error))
            }
            None => {
                self.work = Work::Ended(None);
                (state.epoch, state.position) = (self.epoch + 1, 0);
                None
            }
        }
    }
}

fn make<T>(batch: Result<Batch<T>>) -> Made<T> {
    match batch {
        Ok(Batch { make, position }) => (make(), position),
        Err(error) => (Err(error), 0),
    }
}

impl<T: Send + 'static> Workers<T> {
    fn start(batches: plan::Batches<T>, count: usize, prefetch: u64) -> Result<Self> {
        let shared = Arc::new(Shared {
            next: Mutex::new(batches),
            progress: Mutex::new(Progress {
                begun: 0,
                taken: 0,
                ready: BTreeMap::new(),
                count: None,
                stopped: false,
            }),
            changed: Condvar::new(),
            prefetch,
        });
        let mut workers = Self {
            shared,
            threads: Vec::with_capacity(count),
        };
        for i in 0..count {
            let shared = Arc::clone(&workers.shared);
            let thread = std::thread::Builder::new().name(format!("data-{i}"));
            let thread = thread.spawn(move || shared.work()).map_err(|e| {
                Error::new(
                    ErrorKind::OutOfMemory,
                    format!("worker {i} of {count} could not be started: {e}"),
                )
                .with_op("DataLoader")
                .with_hint("take fewer workers")
            })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }
}

impl<T> Drop for Workers<T> {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic in the thread has already been reported as an error.
            let _ = thread.join();
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, progress: MutexGuard<'a, Progress<T>>) -> MutexGuard<'a, Progress<T>> {
        self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes batches until there are no more, or the loop has stopped.
    fn work(&self) {
        while let Some((number, batch)) = self.begin() {
            let made = catch_unwind(AssertUnwindSafe(|| make(batch)));
            let made = made.unwrap_or_else(|panic| (Err(panicked(&*panic)), 0));
            self.lock().ready.insert(number, made);
            self.changed.notify_all();
        }
    }

    /// The next batch to be made, with its number; `None` if there are no more, or the loop has stopped.
    fn begin(&self) -> Option<(u64, Result<Batch<T>>)> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = self.lock();
        while progress.begun >= progress.taken + self.prefetch && !progress.stopped {
            progress = self.wait(progress);
        }
        if progress.stopped || progress.count.is_some() {
            return None;
        }
        let number = progress.begun;
        progress.begun += 1;
        drop(progress);
        let batch = catch_unwind(AssertUnwindSafe(|| next.next()));
        let batch = batch.unwrap_or_else(|panic| Some(Err(panicked(&*panic))));
        if batch.is_none() {
            self.lock().count = Some(number);
            self.changed.notify_all();
        }
        Some((number, batch?))
    }

    /// Waits for the next batch; `None` after the last one.
    fn take(&self) -> Option<Made<T>> {
        let mut progress = self.lock();
        loop {
            let number = progress.taken;
            if let Some(made) = progress.ready.remove(&number) {
                progress.taken += 1;
                drop(progress);
                self.changed.notify_all();
                return Some(made);
            }
            if progress.count.is_some_and(|count| number >= count) {
                return None;
            }
            progress = self.wait(progress);
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::invalid(format!(
        "what makes the batches panicked: {}",
        panic_message(panic).unwrap_or("it did not say why")
    ))
    .with_op("DataLoader")
}

impl<T> std::fmt::Debug for Batches<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
