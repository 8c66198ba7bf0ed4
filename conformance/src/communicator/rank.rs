//! One rank's side of the suite.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use polygrad_core::communicator::{Communicator, HostBuffer, HostSliceMut, Reduction};
use polygrad_core::{DType, Error, HostTensor, Result, Shape};

use super::report::{Record, Report};
use super::values::{digest, slice};

/// The pattern of the memory around the values, which a collective must not change.
const GUARD: u8 = 0xa5;

enum News {
    Case(String),
    Call,
    Fails(String),
}

/// One rank, whose cases are recorded by another thread.
pub(super) struct Rank {
    /// `None` after it has left.
    comm: Option<Arc<dyn Communicator>>,
    rank: usize,
    size: usize,
    news: Sender<News>,
    /// A digest of the values that must be the same on every rank.
    digest: u64,
    failed: Cell<bool>,
}

/// Runs cases on a separate thread, which is abandoned if it does not return.
pub(super) fn watched(
    comm: Arc<dyn Communicator>,
    margin: Duration,
    cases: impl FnOnce(&mut Rank) -> Result<()> + Send + 'static,
) -> Report {
    let (rank, size, timeout) = (comm.rank(), comm.size(), comm.timeout());
    let engine = comm.name();
    let (news, heard) = channel();
    std::thread::spawn(move || {
        let mut rank = Rank {
            comm: Some(comm),
            rank,
            size,
            news,
            digest: 0,
            failed: Cell::new(false),
        };
        let ended = catch_unwind(AssertUnwindSafe(|| cases(&mut rank)));
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => rank.fails(format!("{error:?}; what follows is not run")),
            Err(_) => rank.fails("panics; what follows is not run".to_owned()),
        }
    });
    let mut records: Vec<Record> = Vec::new();
    let fails = |records: &mut Vec<Record>, failure| match records.last_mut() {
        Some(record) => record.failures.push(failure),
        None => records.push(Record {
            name: "begin".to_owned(),
            failures: vec![failure],
        }),
    };
    loop {
        match heard.recv_timeout(timeout.saturating_add(margin)) {
            Ok(News::Call) => {}
            Ok(News::Case(name)) => records.push(Record {
                name,
                failures: Vec::new(),
            }),
            Ok(News::Fails(failure)) => fails(&mut records, failure),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let failure = format!("does not return within {timeout:?}; what follows is not run");
                fails(&mut records, failure);
                break;
            }
        }
    }
    Report {
        engine,
        rank,
        size,
        records,
    }
}

impl Rank {
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The group.
    ///
    /// # Errors
    /// After [`Rank::leave`].
    pub(super) fn comm(&self) -> Result<Arc<dyn Communicator>> {
        self.comm.clone().ok_or_else(|| Error::invalid("this rank has left"))
    }

    pub(super) fn leave(&mut self) {
        self.comm = None;
    }

    fn tell(&self, news: News) {
        // The receiver is gone if a call took too long.
        let _ = self.news.send(news);
    }

    /// Whether nothing has failed on this rank.
    pub(super) fn passes(&self) -> bool {
        !self.failed.get()
    }

    pub(super) fn fails(&self, failure: String) {
        self.failed.set(true);
        self.tell(News::Fails(failure));
    }

    pub(super) fn expect(&self, holds: bool, failure: impl FnOnce() -> String) {
        if !holds {
            self.fails(failure());
        }
    }

    pub(super) fn called(&self) {
        self.tell(News::Call);
    }

    pub(super) fn case(&self, name: impl Into<String>) {
        self.tell(News::Case(name.into()));
    }

    /// Checks that a call was rejected with an error of this kind.
    pub(super) fn refused(&self, what: &str, kind: polygrad_core::ErrorKind, result: Result<()>) {
        self.called();
        match result {
            Err(error) if error.kind() == kind => {}
            Err(error) => self.fails(format!("{what} is refused by {error:?}, not as {}", kind.as_str())),
            Ok(()) => self.fails(format!("{what} is taken")),
        }
    }

    /// Adds values that must be the same on every rank to the digest.
    pub(super) fn same(&mut self, values: &HostTensor) {
        self.digest = digest(self.digest, values.bytes());
    }

    /// Compares the digest of all ranks.
    pub(super) fn compare(&mut self) -> Result<()> {
        let own = std::mem::take(&mut self.digest).cast_signed();
        let own = HostTensor::new(Shape::new(&[1])?, vec![own])?;
        let all = self.all_gather(&own)?.to_vec::<i64>()?;
        if let Some(other) = all.iter().position(|&other| other != all[0]) {
            self.fails(format!("rank {other} has other bits than rank 0"));
        }
        Ok(())
    }

    pub(super) fn all_reduce(&mut self, values: &HostTensor, op: Reduction) -> Result<HostTensor> {
        let len = values.shape().numel();
        let comm = self.comm()?;
        let reduced = self.guarded(values.dtype(), len, |mut slice| {
            slice.bytes_mut().copy_from_slice(values.bytes());
            comm.all_reduce(slice, op)
        })?;
        self.same(&reduced);
        Ok(reduced)
    }

    pub(super) fn reduce_scatter(&mut self, values: &HostTensor, op: Reduction) -> Result<HostTensor> {
        let len = values.shape().numel() / self.size();
        let comm = self.comm()?;
        self.guarded(values.dtype(), len, |own| comm.reduce_scatter(slice(values)?, own, op))
    }

    pub(super) fn all_gather(&mut self, own: &HostTensor) -> Result<HostTensor> {
        let len = own.shape().numel() * self.size();
        let comm = self.comm()?;
        self.guarded(own.dtype(), len, |all| comm.all_gather(slice(own)?, all))
    }

    pub(super) fn broadcast(&mut self, values: &HostTensor, root: usize) -> Result<HostTensor> {
        let len = values.shape().numel();
        let comm = self.comm()?;
        self.guarded(values.dtype(), len, |mut slice| {
            slice.bytes_mut().copy_from_slice(values.bytes());
            comm.broadcast(slice, root)
        })
    }

    pub(super) fn barrier(&mut self) -> Result<()> {
        let done = self.comm()?.barrier();
        self.called();
        done
    }

    /// Runs a collective on values in the middle of guarded memory, and returns them.
    fn guarded(
        &mut self,
        dtype: DType,
        len: usize,
        f: impl FnOnce(HostSliceMut<'_>) -> Result<()>,
    ) -> Result<HostTensor> {
        let mut buffer = HostBuffer::new((len + 2) * dtype.size())?;
        let bytes = buffer.bytes_mut();
        bytes.fill(GUARD);
        let middle = dtype.size()..(len + 1) * dtype.size();
        let done = f(HostSliceMut::from_bytes(dtype, &mut bytes[middle.clone()])?);
        self.called();
        done?;
        let around = bytes[..middle.start].iter().chain(&bytes[middle.end..]);
        if !around.into_iter().all(|&byte| byte == GUARD) {
            return Err(Error::invalid("the engine writes beside the values"));
        }
        HostTensor::from_bytes(dtype, Shape::new(&[len])?, &bytes[middle])
    }
}
