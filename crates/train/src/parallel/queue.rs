//! A thread that makes collectives in the order in which they are asked for, while others compute.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use polygrad_core::communicator::{Communicator, HostBuffer, HostSliceMut, Reduction};
use polygrad_core::{DType, Error, ErrorKind, Result};

/// Values that are on their way.
pub(super) type Flying = Receiver<Result<HostBuffer>>;

struct Job {
    name: usize,
    dtype: DType,
    values: HostBuffer,
    ready: Instant,
    reply: Sender<Result<HostBuffer>>,
}

/// When a sum was made.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Which bucket.
    pub bucket: usize,
    /// Its length, with what is sent beside gradients.
    pub bytes: usize,
    /// When its values were there.
    pub ready: Instant,
    /// When those before it were done, and it was its turn.
    pub begin: Instant,
    /// When the sum was there.
    pub end: Instant,
}

/// Sums over all ranks, one after the other, made by a thread of its own.
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
                // Nobody waits for a step that failed.
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
            // Where the thread has ended, nobody will reply.
            let _ = jobs.send(job);
        }
        flying
    }

    /// The sums that were made since this was last asked.
    pub(super) fn take_spans(&self) -> Vec<Span> {
        std::mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing left to tell.
            let _ = thread.join();
        }
    }
}
