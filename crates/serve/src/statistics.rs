//! Counters of what a model has done.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often something was done, and how long it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How often.
    pub count: u64,
    /// How long in all, in nanoseconds.
    pub ns: u64,
}

#[derive(Default)]
pub(crate) struct Counter {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Counter {
    pub(crate) fn add(&self, time: Duration) {
        self.add_many(1, time);
    }

    /// `count` times, each of which took `time`.
    pub(crate) fn add_many(&self, count: u64, time: Duration) {
        self.count.fetch_add(count, Relaxed);
        self.ns.fetch_add(nanoseconds(time).saturating_mul(count), Relaxed);
    }

    fn total(&self) -> Total {
        Total {
            count: self.count.load(Relaxed),
            ns: self.ns.load(Relaxed),
        }
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The times, in microseconds, by which the answers of [`Snapshot::within`] are counted.
pub const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Of one version of one model, since the server began.
#[derive(Default)]
pub(crate) struct Statistics {
    within: [AtomicU64; BOUNDS_US.len() + 1],
    success: Counter,
    pub(crate) fail: Counter,
    pub(crate) queue: Counter,
    pub(crate) compute_input: Counter,
    pub(crate) compute_infer: Counter,
    pub(crate) compute_output: Counter,
    pub(crate) rows: AtomicU64,
    pub(crate) executions: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    last: AtomicU64,
    batches: Mutex<BTreeMap<usize, [Total; 3]>>,
}

/// What a model has done since the server began.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Requests that were answered, from arrival to answer.
    pub success: Total,
    /// How many of them took no longer than each of [`BOUNDS_US`], but longer than the one before; the last
    /// took longer than all.
    pub within: [u64; BOUNDS_US.len() + 1],
    /// Requests that failed.
    pub fail: Total,
    /// Waiting for the model, request by request.
    pub queue: Total,
    /// Joining inputs, as each request felt it.
    pub compute_input: Total,
    /// Running the model, as each request felt it.
    pub compute_infer: Total,
    /// Taking outputs apart, as each request felt it.
    pub compute_output: Total,
    /// Rows that were computed.
    pub rows: u64,
    /// Runs of the model.
    pub executions: u64,
    /// Requests that were turned away since too many waited.
    pub refused: u64,
    /// Requests that were too late and not computed.
    pub late: u64,
    /// Requests whose sender had gone, and which were not computed.
    pub cancelled: u64,
    /// When it last ran, in milliseconds since 1970; 0 when it never did.
    pub last_inference_ms: u64,
    /// By the number of rows of a run: joining inputs, running, taking outputs apart.
    pub batches: BTreeMap<usize, [Total; 3]>,
    /// Requests that wait now.
    pub waiting: usize,
}

impl Statistics {
    /// A request was answered after `time`.
    pub(crate) fn answered(&self, time: Duration) {
        self.success.add(time);
        let place = BOUNDS_US.partition_point(|&bound| bound * 1000 < nanoseconds(time));
        self.within[place].fetch_add(1, Relaxed);
    }

    /// A run of `rows` rows for `requests` requests: joining inputs, running, taking outputs apart.
    pub(crate) fn run(&self, requests: usize, rows: usize, times: [Duration; 3]) {
        let counters = [&self.compute_input, &self.compute_infer, &self.compute_output];
        for (counter, time) in counters.into_iter().zip(times) {
            counter.add_many(requests as u64, time);
        }
        self.rows.fetch_add(rows as u64, Relaxed);
        self.executions.fetch_add(1, Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last
            .store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Relaxed);
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        for (total, time) in batches.entry(rows).or_default().iter_mut().zip(times) {
            total.count += 1;
            total.ns += nanoseconds(time);
        }
    }

    pub(crate) fn snapshot(&self, waiting: usize) -> Snapshot {
        Snapshot {
            success: self.success.total(),
            within: self.within.each_ref().map(|count| count.load(Relaxed)),
            fail: self.fail.total(),
            queue: self.queue.total(),
            compute_input: self.compute_input.total(),
            compute_infer: self.compute_infer.total(),
            compute_output: self.compute_output.total(),
            rows: self.rows.load(Relaxed),
            executions: self.executions.load(Relaxed),
            refused: self.refused.load(Relaxed),
            late: self.late.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            last_inference_ms: self.last.load(Relaxed),
            batches: self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            waiting,
        }
    }
}
