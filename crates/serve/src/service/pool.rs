//! The threads that run slow models.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use polygrad_core::{Error, ErrorKind, Result};

use super::Service;

/// Threads that run models, shared by all of them. They end when the last clone is dropped and nothing waits.
#[derive(Clone)]
pub struct Pool(Arc<Owner>);

struct Owner(Arc<Shared>);

#[derive(Default)]
struct Shared {
    line: Mutex<Line>,
    changed: Condvar,
}

/// Models with waiting requests, each once.
#[derive(Default)]
struct Line {
    services: VecDeque<Arc<Service>>,
    is_closed: bool,
}

impl Pool {
    /// A pool of this many threads, at least one.
    ///
    /// # Errors
    /// If the system cannot create more threads.
    pub fn new(threads: usize) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let pool = Self(Arc::new(Owner(Arc::clone(&shared))));
        for i in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name(format!("model-{i}"));
            builder.spawn(move || shared.work()).map_err(|error| {
                Error::new(ErrorKind::OutOfMemory, "no thread could be started to run models").with_source(error)
            })?;
        }
        Ok(pool)
    }

    pub(super) fn push(&self, service: Arc<Service>) {
        self.0.0.push(service);
    }
}

impl Shared {
    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, service: Arc<Service>) {
        self.line().services.push_back(service);
        self.changed.notify_one();
    }

    fn work(&self) {
        while let Some(service) = self.next() {
            service.take_turn();
        }
    }

    fn next(&self) -> Option<Arc<Service>> {
        let mut line = self.line();
        loop {
            if let Some(service) = line.services.pop_front() {
                return Some(service);
            }
            if line.is_closed {
                return None;
            }
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.line().is_closed = true;
        self.0.changed.notify_all();
    }
}
