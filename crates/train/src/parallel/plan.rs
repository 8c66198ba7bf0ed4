//! Prediction of a training step on more ranks: time, communication, memory.

use std::time::Duration;

use polygrad_core::{Error, Result};

/// Costs of a training step on one rank that does not wait for others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepProfile {
    /// From the step's beginning until all gradients are in their buckets: forward and backward pass.
    pub backward: Duration,
    /// The buckets, in the order in which they are sent.
    pub buckets: Vec<BucketProfile>,
    /// From the last sum until the optimizer has its gradients.
    pub unpack: Duration,
    /// The optimizer's step.
    pub optimizer: Duration,
    /// Bytes of the parameters and buffers of the model.
    pub parameters: usize,
    /// Bytes of the optimizer's state.
    pub optimizer_state: usize,
    /// Most bytes of values that the step holds at once besides the model, including gradients:
    /// [`CapturedStep::peak_bytes`](polygrad_nn::CapturedStep::peak_bytes).
    pub values: usize,
}

/// Gradients that are sent together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketProfile {
    /// Size in bytes.
    pub bytes: usize,
    /// When they were ready, from the step's beginning.
    pub ready: Duration,
}

/// A connection between ranks; every rank sends to one and receives from another at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time of a message regardless of its length.
    pub latency: Duration,
    /// Bytes per second in each direction. If it was measured with all-reduces, it includes the time for adding values.
    pub bandwidth: f64,
}

/// The ranks of a [`StepProfile::predict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    ranks: usize,
    overlaps: bool,
    shards_optimizer: bool,
}

/// Predicted costs of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The whole step.
    pub step: Duration,
    /// The part of it in which gradients or parameters are exchanged and nothing is computed.
    pub exposed: Duration,
    /// Bytes that each rank sends.
    pub sent: u64,
    /// The most bytes that each rank uses: model, optimizer, sums, and the values of the step. The program itself, the
    /// batches that a loader holds, and memory that a backend needs within an op or caches are not included.
    pub memory: u64,
}

impl PlanConfig {
    /// `ranks` ranks, each of which has a spare core for communication and keeps the whole state of the optimizer.
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks,
            overlaps: true,
            shards_optimizer: false,
        }
    }

    /// Whether sums are computed during the backward pass. They are not if the ranks use all cores of their machine,
    /// since communication then takes time from computation. Default: true.
    #[must_use]
    pub fn overlaps(mut self, overlaps: bool) -> Self {
        self.overlaps = overlaps;
        self
    }

    /// Whether the optimizer's state is sharded over the ranks, as by [`ShardedOptimizer`](crate::ShardedOptimizer).
    /// Default: false.
    #[must_use]
    pub fn shards_optimizer(mut self, shards: bool) -> Self {
        self.shards_optimizer = shards;
        self
    }
}

impl Link {
    /// Fits a link to the times of all-reduces of several sizes in bytes on `ranks` ranks. It is a least-squares line
    /// through relative errors, so that short times count as much as long ones.
    ///
    /// # Errors
    /// Fewer than two ranks or two sizes; times that do not grow with the size.
    pub fn fit(ranks: usize, times: &[(usize, Duration)]) -> Result<Self> {
        if ranks < 2 {
            return Err(Error::invalid("a link is between at least two ranks"));
        }
        let mut sums = [0.0; 5];
        for (bytes, time) in times {
            let (x, y) = (*bytes as f64, time.as_secs_f64());
            let weight = 1.0 / (y * y).max(f64::MIN_POSITIVE);
            let terms = [1.0, x, x * x, y, x * y];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * term);
        }
        let [w, x, xx, y, xy] = sums;
        let slope = (w * xy - x * y) / (w * xx - x * x);
        if !(slope.is_finite() && slope > 0.0) {
            return Err(
                Error::invalid("the times of the all-reduces do not grow with their sizes")
                    .with_hint("measure two sizes or more, on a machine that does nothing else"),
            );
        }
        let (steps, share) = ring(ranks);
        // A negative latency is only a matter of precision.
        let latency = ((y - slope * x) / w / steps).max(0.0);
        Ok(Self {
            latency: duration("the latency", latency)?,
            bandwidth: share / slope,
        })
    }

    /// Seconds of an all-reduce: a ring in which each rank sends its share 2 (N - 1) times.
    fn all_reduce(&self, ranks: usize, bytes: usize) -> f64 {
        let (steps, share) = ring(ranks);
        steps * self.latency.as_secs_f64() + share * bytes as f64 / self.bandwidth
    }

    /// Seconds of an all-gather, half of an all-reduce.
    fn all_gather(&self, ranks: usize, bytes: usize) -> f64 {
        self.all_reduce(ranks, bytes) / 2.0
    }
}

fn duration(of: &str, seconds: f64) -> Result<Duration> {
    let found = Duration::try_from_secs_f64(seconds);
    found.map_err(|e| Error::invalid(format!("{of} would take {seconds} s: {e}")))
}

/// Number of messages that a rank sends in an all-reduce, and their total size relative to the values.
fn ring(ranks: usize) -> (f64, f64) {
    let steps = 2.0 * (ranks - 1) as f64;
    (steps, steps / ranks as f64)
}

impl StepProfile {
    /// Predicts the same step on several ranks connected by such links, with batches of the same size on every rank.
    ///
    /// Buckets are summed one after another, in a ring: 2 (N - 1) messages of an N-th of a bucket.
    ///
    /// Sources: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005);
    /// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
    ///
    /// # Errors
    /// No ranks; a bandwidth that is not a number above 0; a time beyond the range of [`Duration`].
    pub fn predict(&self, link: &Link, config: PlanConfig) -> Result<Prediction> {
        let PlanConfig {
            ranks,
            overlaps,
            shards_optimizer,
        } = config;
        if ranks == 0 {
            return Err(Error::invalid("a group has at least one rank"));
        }
        if !(link.bandwidth.is_finite() && link.bandwidth > 0.0) {
            let message = format!("a bandwidth of {} bytes per second moves nothing", link.bandwidth);
            return Err(Error::invalid(message).with_hint("give a number above 0"));
        }
        let backward = self.backward.as_secs_f64();
        let summed = self.buckets.iter().fold(0.0, |before: f64, bucket| {
            let begin = match overlaps {
                true => before.max(bucket.ready.as_secs_f64()),
                false => before.max(backward),
            };
            begin + link.all_reduce(ranks, bucket.bytes)
        });
        let (optimizer, gathered) = match shards_optimizer {
            true => (
                self.optimizer.as_secs_f64() / ranks as f64,
                link.all_gather(ranks, self.parameters),
            ),
            false => (self.optimizer.as_secs_f64(), 0.0),
        };
        let exposed = (summed - backward).max(0.0) + gathered;
        let step = backward + exposed + self.unpack.as_secs_f64() + optimizer;
        Ok(Prediction {
            step: duration("the step", step)?,
            exposed: duration("the exchange", exposed)?,
            sent: self.sent(ranks, shards_optimizer),
            memory: self.memory(ranks, shards_optimizer),
        })
    }

    /// Bytes of all buckets.
    pub fn sums(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.bytes).sum()
    }

    fn sent(&self, ranks: usize, shards_optimizer: bool) -> u64 {
        let (_, share) = ring(ranks);
        let gathered = if shards_optimizer {
            self.parameters as f64 / 2.0
        } else {
            0.0
        };
        (share * (self.sums() as f64 + gathered)).round() as u64
    }

    fn memory(&self, ranks: usize, shards_optimizer: bool) -> u64 {
        let whole = self.parameters + self.sums();
        let memory = match shards_optimizer {
            true => {
                // A rank's own piece of the parameters and, while they are gathered, those of all ranks and two copies
                // of its own.
                let piece = self.parameters.div_ceil(ranks);
                let gathering = self.parameters + 2 * piece;
                whole + piece + self.optimizer_state.div_ceil(ranks) + self.values.max(gathering)
            }
            false => whole + self.optimizer_state + self.values,
        };
        memory as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Two buckets of 1 MB, ready after 6 and 10 ms of 10 ms; 1 ms to unpack, 4 ms for the optimizer.
    fn profile() -> StepProfile {
        let bucket = |ready| BucketProfile {
            bytes: 1_000_000,
            ready: ready * MS,
        };
        StepProfile {
            backward: 10 * MS,
            buckets: vec![bucket(6), bucket(10)],
            unpack: MS,
            optimizer: 4 * MS,
            parameters: 2_000_000,
            optimizer_state: 4_000_000,
            values: 5_000_000,
        }
    }

    /// 1 GB/s: 1 ms for 1 MB.
    const LINK: Link = Link {
        latency: Duration::from_micros(250),
        bandwidth: 1e9,
    };

    fn close(found: Duration, wanted: f64) {
        let found = found.as_secs_f64() * 1e3;
        assert!((found - wanted).abs() < 1e-5, "{found} ms instead of {wanted} ms");
    }

    #[test]
    fn a_rank_alone_sends_nothing() {
        let found = profile().predict(&LINK, PlanConfig::new(1)).unwrap();
        close(found.step, 15.0);
        assert_eq!(
            (found.exposed, found.sent, found.memory),
            (Duration::ZERO, 0, 13_000_000)
        );
    }

    #[test]
    fn sums_overlap_with_the_backward_pass_one_after_the_other() {
        // A sum takes 2 * 250 µs and 1 ms: from 6 to 7.5, and from 10 to 11.5.
        let found = profile().predict(&LINK, PlanConfig::new(2)).unwrap();
        close(found.exposed, 1.5);
        close(found.step, 16.5);
        assert_eq!((found.sent, found.memory), (2_000_000, 13_000_000));
        // Of four 6 * 250 µs and 1.5 ms: from 6 to 9, and from 10 to 13.
        close(profile().predict(&LINK, PlanConfig::new(4)).unwrap().step, 18.0);
        // At a tenth of the speed 2 * 250 µs and 10 ms: from 6 to 16.5, and then to 27.
        let slow = Link { bandwidth: 1e8, ..LINK };
        close(profile().predict(&slow, PlanConfig::new(2)).unwrap().exposed, 17.0);
    }

    #[test]
    fn on_cores_that_are_all_taken_nothing_overlaps() {
        let found = profile().predict(&LINK, PlanConfig::new(2).overlaps(false)).unwrap();
        close(found.exposed, 3.0);
        close(found.step, 18.0);
    }

    #[test]
    fn a_sharded_optimizer_gathers_parameters_and_keeps_its_part() {
        let config = PlanConfig::new(2).shards_optimizer(true);
        let found = profile().predict(&LINK, config).unwrap();
        // The gathering takes 250 µs and 1 ms, the optimizer half of its time.
        close(found.exposed, 1.5 + 1.25);
        close(found.step, 10.0 + 2.75 + 1.0 + 2.0);
        assert_eq!(found.sent, 3_000_000);
        // Model and sums, its piece of the model and of the moments, the values.
        assert_eq!(found.memory, 4_000_000 + 1_000_000 + 2_000_000 + 5_000_000);
        let small = StepProfile { values: 0, ..profile() };
        let gathering = small.predict(&LINK, config).unwrap().memory;
        assert_eq!(gathering, 4_000_000 + 1_000_000 + 2_000_000 + 4_000_000);
    }

    #[test]
    fn a_link_is_found_from_times() {
        let config = [1_000, 50_000, 1_000_000].map(|bytes| {
            let seconds = LINK.all_reduce(4, bytes);
            (bytes, Duration::from_secs_f64(seconds))
        });
        let found = Link::fit(4, &config).unwrap();
        assert!((found.bandwidth / 1e9 - 1.0).abs() < 1e-4, "{found:?}");
        assert!(
            found.latency.abs_diff(LINK.latency) < Duration::from_nanos(50),
            "{found:?}"
        );
        for times in [&config[..1], &[], &[(1, 2 * MS), (9, MS)]] {
            let error = Link::fit(4, times).unwrap_err().to_string();
            assert!(error.contains("do not grow"), "{error}");
        }
        assert!(Link::fit(1, &config).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(profile().predict(&LINK, PlanConfig::new(0)).is_err());
        for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-30] {
            let link = Link { bandwidth, ..LINK };
            assert!(profile().predict(&link, PlanConfig::new(2)).is_err(), "{bandwidth}");
        }
    }
}
