//! A thread that runs collectives in the order of requests, while other threads compute.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use polygrad_core::communicator::{Communicator, HostBuffer, HostSliceMut, Reduction};
use polygrad_core::{DType, Error, ErrorKind, Result};

/// Values in flight.
pub(super) type Flying = Receiver<Result<HostBuffer>>;

struct Job {
    name: usize,
    dtype: DType,
    values: HostBuffer,
    ready: Instant,
    reply: Sender<Result<HostBuffer>>,
}

/// The times of a sum.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Number of the bucket.
    pub bucket: usize,
    /// Its size in bytes, including the values sent besides gradients.
    pub bytes: usize,
    /// When its values were ready.
    pub ready: Instant,
    /// When the sums before it were done and it began.
    pub begin: Instant,
    /// When the sum was done.
    pub end: Instant,
}

/// Sums over all ranks, computed one after another by a separate thread.
pub(super) struct Queue {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Queue {
    pub(super) fn start(communicator: Arc<dyn Communicator>) -> Result<Self> {
        let (jobs, work) = channel::<Job>();
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let seen = Arc::clone(&spans);
        let run = move || {
            for job in work {
                let begin = Instant::now();
                let Job {
                    name,
                    dtype,
                    mut values,
                    ready,
                    reply,
                } = job;
                let sum = HostSliceMut::from_bytes(dtype, values.bytes_mut())
                    .and_then(|slice| communicator.all_reduce(slice, Reduction::Sum));
                let end = Instant::now();
                let mut spans = seen.lock().unwrap_or_else(PoisonError::into_inner);
                spans.push(Span {
                    bucket: name,
                    bytes: values.bytes().len(),
                    ready,
                    begin,
                    end,
                });
                drop(spans);
                // The receiver is gone after a failed step.
                let _ = reply.send(sum.map(|()| values));
            }
        };
        let thread = std::thread::Builder::new().name("collectives".to_owned()).spawn(run);
        let thread = thread.map_err(|e| {
            let message = format!("the thread that exchanges gradients could not be started: {e}");
            Error::new(ErrorKind::OutOfMemory, message)
        })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            spans,
        })
    }

    pub(super) fn sum(&self, name: usize, dtype: DType, values: HostBuffer) -> Flying {
        let (reply, flying) = channel();
        let job = Job {
            name,
            dtype,
            values,
            ready: Instant::now(),
            reply,
        };
        if let Some(jobs) = &self.jobs {
            // If the thread has ended, the receiver reports it.
            let _ = jobs.send(job);
        }
        flying
    }

    /// The times of the sums since the last call.
    pub(super) fn take_spans(&self) -> Vec<Span> {
        std::mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // The thread has nothing left to report.
            let _ = thread.join();
        }
    }
}
