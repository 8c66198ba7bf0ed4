//! The suite for communicators passes with threads, and detects every injected fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use polygrad_conformance::communicator::{Call, Ending, Options, Report, ends, run};
use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut, Reduction};
use polygrad_core::{DType, Error, Result};
use polygrad_threads::Threads;

const QUICK: Options = Options {
    most: 1001,
    margin: Duration::from_millis(800),
    names_peers: true,
    shrinks: true,
};

/// Runs each rank on a thread.
fn reports(size: usize, timeout: Duration, f: impl Fn(Threads) -> Report + Send + Sync + 'static) -> Vec<Report> {
    let f = Arc::new(f);
    let start = |end| {
        let f = Arc::clone(&f);
        thread::spawn(move || f(end))
    };
    let started: Vec<_> = Threads::group(size, timeout).unwrap().into_iter().map(start).collect();
    started.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn hold(reports: &[Report]) {
    for report in reports {
        assert!(report.passed(), "{report}");
    }
}

#[test]
fn threads_pass() {
    for size in 1..=4 {
        let reports = reports(size, Duration::from_secs(60), |end| {
            let comm: Arc<dyn Communicator> = Arc::new(end);
            run(&comm, &Options { most: 100_000, ..QUICK })
        });
        hold(&reports);
        let cases = reports[0].records.len();
        assert!(cases > 70, "{cases} cases");
    }
}

#[test]
fn ten_million_values() {
    let reports = reports(2, Duration::from_secs(60), |end| {
        let comm: Arc<dyn Communicator> = Arc::new(end);
        run(&comm, &Options::default())
    });
    hold(&reports);
}

#[test]
fn threads_end_as_they_should() {
    for size in 2..=3 {
        for ending in [Ending::Late, Ending::Leaves, Ending::Aborts] {
            for call in Call::ALL {
                let found = reports(size, Duration::from_millis(200), move |end| {
                    ends(Arc::new(end), ending, call, &QUICK)
                });
                hold(&found);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Without a fault, the wrapper itself passes.
    None,
    WrongSum,
    OtherBitsOnOneRank,
    OtherBitsEachTime,
    NanIsLost,
    Saturates,
    AddsBools,
    GathersBackwards,
    BroadcastsRankZero,
    ScattersTheFirstPart,
    DoesNotWait,
    TakesWhatDoesNotFit,
    SendsBeforeItLooks,
    BoundToAThread,
    OneCallBehind,
    LongIsCut,
    Fails,
    Panics,
    NeverReturns,
}

const FAULTS: [Fault; 18] = [
    Fault::WrongSum,
    Fault::OtherBitsOnOneRank,
    Fault::OtherBitsEachTime,
    Fault::NanIsLost,
    Fault::Saturates,
    Fault::AddsBools,
    Fault::GathersBackwards,
    Fault::BroadcastsRankZero,
    Fault::ScattersTheFirstPart,
    Fault::DoesNotWait,
    Fault::TakesWhatDoesNotFit,
    Fault::SendsBeforeItLooks,
    Fault::BoundToAThread,
    Fault::OneCallBehind,
    Fault::LongIsCut,
    Fault::Fails,
    Fault::Panics,
    Fault::NeverReturns,
];

#[derive(Debug)]
struct Faulty {
    inner: Threads,
    fault: Fault,
    calls: AtomicUsize,
    first: std::sync::OnceLock<ThreadId>,
    last: std::sync::Mutex<Vec<u8>>,
}

impl Faulty {
    fn new(inner: Threads, fault: Fault) -> Self {
        let (calls, first, last) = Default::default();
        Self {
            inner,
            fault,
            calls,
            first,
            last,
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}

impl Communicator for Faulty {
    fn name(&self) -> String {
        "faulty".to_owned()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn all_reduce(&self, mut values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (dtype, len) = (values.dtype(), values.len());
        if self.is(Fault::DoesNotWait) && len == 0 {
            return Ok(());
        }
        if self.is(Fault::BoundToAThread)
            && *self.first.get_or_init(|| thread::current().id()) != thread::current().id()
        {
            return Err(Error::invalid("another thread"));
        }
        match self.fault {
            Fault::NeverReturns if len == 1000 => loop {
                thread::park();
            },
            Fault::Panics if len == 1000 => panic!("as asked"),
            Fault::Fails if len == 1000 => return Err(Error::communication("as asked")),
            Fault::AddsBools if dtype == DType::Bool => {
                return self.inner.all_reduce(values, Reduction::Max);
            }
            Fault::LongIsCut if len == QUICK.most => {
                let bytes = &mut values.bytes_mut()[..(len - 1) * dtype.size()];
                return self.inner.all_reduce(HostSliceMut::from_bytes(dtype, bytes)?, op);
            }
            _ => {}
        }
        let own = values.as_slice().bytes().to_vec();
        self.inner.all_reduce(values.reborrow(), op)?;
        if len == 0 {
            return Ok(());
        }
        let bytes = values.bytes_mut();
        let last = bytes.len() - dtype.size();
        match self.fault {
            Fault::WrongSum if op == Reduction::Sum => bytes.copy_from_slice(&own),
            Fault::OtherBitsOnOneRank if dtype == DType::F32 && op == Reduction::Sum && len > 100 => {
                bytes[last] ^= u8::from(self.rank() == 1);
            }
            Fault::OtherBitsEachTime if dtype == DType::F64 && op == Reduction::Sum => {
                bytes[last] ^= (call % 2) as u8;
            }
            Fault::NanIsLost if dtype == DType::F16 && op == Reduction::Max => {
                for value in bytes.as_chunks_mut::<2>().0 {
                    if u16::from_ne_bytes(*value) & 0x7fff > 0x7c00 {
                        *value = [0; 2];
                    }
                }
            }
            Fault::Saturates if dtype == DType::U8 && op == Reduction::Sum => {
                let pairs = bytes.iter_mut().zip(&own);
                pairs.for_each(|(sum, &own)| *sum = if *sum < own { u8::MAX } else { *sum });
            }
            Fault::OneCallBehind => {
                let mut before = self.last.lock().unwrap();
                let result = bytes.to_vec();
                if before.len() == bytes.len() {
                    bytes.copy_from_slice(&before);
                }
                *before = result;
            }
            _ => {}
        }
        Ok(())
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, mut own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        if !self.is(Fault::ScattersTheFirstPart) {
            return self.inner.reduce_scatter(values, own, op);
        }
        let mut all = values.bytes().to_vec();
        self.inner
            .all_reduce(HostSliceMut::from_bytes(values.dtype(), &mut all)?, op)?;
        let bytes = own.bytes_mut();
        bytes.copy_from_slice(&all[..bytes.len()]);
        Ok(())
    }

    fn all_gather(&self, own: HostSlice<'_>, mut all: HostSliceMut<'_>) -> Result<()> {
        match self.fault {
            Fault::TakesWhatDoesNotFit if own.len() * self.size() != all.len() => return Ok(()),
            Fault::SendsBeforeItLooks => self.inner.barrier()?,
            _ => {}
        }
        self.inner.all_gather(own, all.reborrow())?;
        if self.is(Fault::GathersBackwards) && own.len() > 1 {
            let parts: Vec<Vec<u8>> = all
                .bytes_mut()
                .chunks(own.bytes().len())
                .rev()
                .map(<[u8]>::to_vec)
                .collect();
            all.bytes_mut().copy_from_slice(&parts.concat());
        }
        Ok(())
    }

    fn broadcast(&self, values: HostSliceMut<'_>, root: usize) -> Result<()> {
        let root = if self.is(Fault::BroadcastsRankZero) { 0 } else { root };
        self.inner.broadcast(values, root)
    }

    fn barrier(&self) -> Result<()> {
        self.inner.barrier()
    }
}

#[test]
fn every_fault_is_caught() {
    for fault in [Fault::None].into_iter().chain(FAULTS) {
        let found = reports(2, Duration::from_millis(1200), move |end| {
            let comm: Arc<dyn Communicator> = Arc::new(Faulty::new(end, fault));
            run(&comm, &QUICK)
        });
        let caught = found.iter().any(|report| !report.passed());
        assert_eq!(caught, fault != Fault::None, "{fault:?}: {}", found[0]);
        assert!(found.iter().all(|report| !report.records.is_empty()), "{fault:?}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    NamesAnother,
    NamesNobody,
    IsNoError,
    IsAnotherKind,
    Hangs,
    Survives,
    ShrinksToAll,
}

/// A communicator that handles a lost rank wrongly.
#[derive(Debug)]
struct Lossy {
    inner: Threads,
    loss: Loss,
}

impl Lossy {
    fn passed(&self, result: Result<()>) -> Result<()> {
        let Err(error) = result else { return Ok(()) };
        Err(match self.loss {
            Loss::NamesAnother => Error::lost_peer(0, "left"),
            Loss::NamesNobody => Error::communication("somebody left"),
            Loss::IsNoError => return Ok(()),
            Loss::IsAnotherKind => Error::invalid("no"),
            Loss::Hangs => loop {
                thread::park();
            },
            Loss::Survives | Loss::ShrinksToAll => error,
        })
    }
}

impl Communicator for Lossy {
    fn name(&self) -> String {
        "lossy".to_owned()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn all_reduce(&self, values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        self.passed(self.inner.all_reduce(values, op))
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        self.passed(self.inner.reduce_scatter(values, own, op))
    }

    fn all_gather(&self, own: HostSlice<'_>, all: HostSliceMut<'_>) -> Result<()> {
        self.passed(self.inner.all_gather(own, all))
    }

    fn broadcast(&self, values: HostSliceMut<'_>, root: usize) -> Result<()> {
        self.passed(self.inner.broadcast(values, root))
    }

    fn barrier(&self) -> Result<()> {
        match self.loss {
            Loss::Survives => Ok(()),
            _ => self.passed(self.inner.barrier()),
        }
    }

    fn shrink(&self) -> Result<Arc<dyn Communicator>> {
        match self.loss {
            Loss::ShrinksToAll => Ok(Arc::new(Threads::group(1, self.timeout())?.remove(0))),
            _ => self.inner.shrink(),
        }
    }
}

#[test]
fn every_wrong_end_is_caught() {
    use Loss::{Hangs, IsAnotherKind, IsNoError, NamesAnother, NamesNobody, ShrinksToAll, Survives};
    for loss in [
        NamesAnother,
        NamesNobody,
        IsNoError,
        IsAnotherKind,
        Hangs,
        Survives,
        ShrinksToAll,
    ] {
        let found = reports(3, Duration::from_millis(200), move |inner| {
            let comm = Arc::new(Lossy { inner, loss });
            ends(comm, Ending::Leaves, Call::AllReduce, &QUICK)
        });
        assert!(found.iter().any(|report| !report.passed()), "{loss:?} is not caught");
    }
}
