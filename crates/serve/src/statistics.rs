//! Statistics of a model.

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

/// Upper bounds, in microseconds, of the latency buckets in [`Snapshot::within`].
pub const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Statistics of one version of a model since the server started.
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

/// The statistics of a model since the server started.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Successful requests, from arrival to answer.
    pub success: Total,
    /// The number of successful requests in each latency bucket: at most the bound in [`BOUNDS_US`], but more than the
    /// previous one. The last bucket is above all bounds.
    pub within: [u64; BOUNDS_US.len() + 1],
    /// Requests that failed.
    pub fail: Total,
    /// The waiting time of each request.
    pub queue: Total,
    /// The time for joining inputs, counted for each request.
    pub compute_input: Total,
    /// The time for running the model, counted for each request.
    pub compute_infer: Total,
    /// The time for splitting outputs, counted for each request.
    pub compute_output: Total,
    /// The number of rows computed.
    pub rows: u64,
    /// The number of runs of the model.
    pub executions: u64,
    /// Requests that were rejected because the queue was full.
    pub refused: u64,
    /// Requests that were not computed because they were late.
    pub late: u64,
    /// Requests that were not computed because the client was gone.
    pub cancelled: u64,
    /// When it last ran, in milliseconds since 1970; 0 if it never did.
    pub last_inference_ms: u64,
    /// By the number of rows of a run: the times for joining inputs, running, and splitting outputs.
    pub batches: BTreeMap<usize, [Total; 3]>,
    /// The number of waiting requests.
    pub waiting: usize,
}

impl Statistics {
    /// Records that a request was answered after `time`.
    pub(crate) fn answered(&self, time: Duration) {
        self.success.add(time);
        let place = BOUNDS_US.partition_point(|&bound| bound * 1000 < nanoseconds(time));
        self.within[place].fetch_add(1, Relaxed);
    }

    /// Records a run of `rows` rows for `requests` requests, with the times for joining inputs, running, and splitting
    /// outputs.
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
