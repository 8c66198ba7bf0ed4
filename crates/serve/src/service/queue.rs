//! The queue of requests for a model.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use polygrad_core::{Error, Result};
use smallvec::SmallVec;

use super::sequence::Sequences;
use super::{Group, Inputs, Reply, Settings};
use crate::{Failure, Reason, SequenceStep, Signature, TensorSpec, Value};

/// A waiting request.
pub(super) struct Job {
    /// In the signature's order; `None` for the states of a sequence.
    pub(super) inputs: Inputs,
    pub(super) rows: usize,
    pub(super) group: Group,
    pub(super) priority: u64,
    pub(super) deadline: Option<Instant>,
    pub(super) sequence: Option<SequenceStep>,
    pub(super) since: Instant,
    pub(super) reply: Reply,
}

impl Job {
    pub(super) fn input(&self, place: usize, spec: &TensorSpec) -> Result<&Value> {
        let missing = || Error::invalid(format!("the input {:?} is missing", spec.name));
        self.inputs[place].as_ref().ok_or_else(missing)
    }
}

/// The most urgent requests come first, among equally urgent ones the oldest.
#[derive(Default)]
pub(super) struct Queue {
    /// Boxed, since jobs are moved several times.
    jobs: VecDeque<Box<Job>>,
    /// Set once requests were late while more than one batch waited, so that not all can be answered. Requests with
    /// little time left are then dropped in favour of others, since a run that takes slightly longer than usual
    /// would make them late.
    is_overloaded: bool,
    pub(super) sequences: Sequences,
}

/// Requests that are computed together, in the boxes in which they waited.
pub(super) type Jobs = SmallVec<[Box<Job>; 4]>;

/// The result of [`Queue::take`].
pub(super) struct Taken {
    /// When they were taken.
    pub(super) at: Instant,
    pub(super) jobs: Jobs,
    /// Requests that are too late or cannot be computed, with the failure; `None` for one that was cancelled.
    pub(super) dropped: Vec<(Box<Job>, Option<Failure>)>,
    /// Whether requests that could be computed now are left in the queue.
    pub(super) leaves_more: bool,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether a waiting request could be computed now.
    pub(super) fn is_ready(&self) -> bool {
        self.jobs
            .iter()
            .any(|job| self.sequences.is_free(job.sequence.as_ref()))
    }

    /// Whether a request has more rows than this.
    pub(super) fn has_more_rows(&self, rows: usize) -> bool {
        self.jobs.iter().any(|job| job.rows > rows)
    }

    /// # Errors
    /// Too many requests.
    pub(super) fn admit(&self, settings: &Settings) -> Result<(), Failure> {
        if self.jobs.len() < settings.max_queue {
            return Ok(());
        }
        let message = format!("{} requests wait for this model, which is its limit", self.jobs.len());
        Err(Failure::new(Reason::Busy(Duration::from_secs(1)), message))
    }

    /// # Errors
    /// Too many requests or sequences; a sequence that has not begun.
    pub(super) fn push(&mut self, job: Box<Job>, settings: &Settings) -> Result<(), Failure> {
        self.admit(settings)?;
        if let Some(step) = &job.sequence {
            self.sequences.open(step, job.since, settings)?;
        }
        let place = match self.jobs.back() {
            Some(last) if last.priority > job.priority => {
                self.jobs.partition_point(|other| other.priority <= job.priority)
            }
            _ => self.jobs.len(),
        };
        self.jobs.insert(place, job);
        Ok(())
    }

    /// Takes the first request that can be computed, and others that fit into the same run, which is expected to take
    /// `time`. A request without a deadline is dropped if it has waited for longer than `patience`.
    pub(super) fn take(
        &mut self,
        signature: &Signature,
        max_rows: usize,
        time: Duration,
        patience: Option<Duration>,
    ) -> Taken {
        let now = Instant::now();
        let mut taken = Taken {
            at: now,
            jobs: Jobs::new(),
            dropped: Vec::new(),
            leaves_more: false,
        };
        let mut rows = 0;
        let mut i = 0;
        while i < self.jobs.len() {
            let job = &self.jobs[i];
            // Requests that would be answered too late make room for others. The last one is tried anyway,
            // since `time` is a guess.
            let latest = match self.jobs.len() - i {
                1 => now,
                rest if self.is_overloaded && rest > max_rows => now + 2 * time,
                _ => now + time,
            };
            let is_late = match job.deadline {
                Some(deadline) => deadline < latest,
                None => patience.is_some_and(|patience| now - job.since > patience),
            };
            if is_late || job.reply.is_closed() {
                let Some(job) = self.jobs.remove(i) else { break };
                let late = || {
                    let message = match (job.deadline, patience) {
                        (None, Some(patience)) => format!(
                            "the request waited for {} s, which is the model's limit where a request tells no timeout: tell a \
                             longer one, or come again when fewer wait",
                            patience.as_secs_f64()
                        ),
                        _ => "the deadline would have passed before the model had the answer".to_owned(),
                    };
                    Failure::new(Reason::Late, message)
                };
                self.sequences.skip(job.sequence.as_ref());
                let failure = is_late.then(late);
                taken.dropped.push((job, failure));
                continue;
            }
            let fits = match taken.jobs.first() {
                None => true,
                Some(first) => rows + job.rows <= max_rows && first.group == job.group,
            };
            if !fits || !self.sequences.is_free(job.sequence.as_ref()) {
                i += 1;
                // The batch is full: stop searching.
                if rows >= max_rows {
                    break;
                }
                continue;
            }
            let Some(mut job) = self.jobs.remove(i) else { break };
            match self.sequences.begin(&mut job, signature) {
                Ok(()) => {
                    rows += job.rows;
                    taken.jobs.push(job);
                }
                Err(failure) => taken.dropped.push((job, Some(failure))),
            }
        }
        let is_late = |(_, failure): &(_, Option<Failure>)| failure.as_ref().is_some_and(|f| f.reason == Reason::Late);
        self.is_overloaded |= taken.dropped.iter().any(is_late);
        self.is_overloaded &= self.jobs.len() > max_rows;
        taken.leaves_more = self.is_ready();
        taken
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Queues requests with the given seconds left until their deadlines, takes twice, with runs that take 100 s, and
    /// returns the seconds of those taken.
    fn taken(seconds: &[u64]) -> Vec<u64> {
        let (mut queue, mut waiting, now) = (Queue::default(), Vec::new(), Instant::now());
        for &left in seconds {
            let (reply, answer) = oneshot::channel();
            waiting.push(answer);
            let job = Job {
                inputs: Inputs::new(),
                rows: 1,
                group: Group::new(),
                priority: 1,
                deadline: Some(now + Duration::from_secs(left)),
                sequence: None,
                since: now,
                reply,
            };
            queue.push(Box::new(job), &Settings::default()).unwrap();
        }
        let mut next = || {
            queue
                .take(&Signature::default(), 1, Duration::from_secs(100), None)
                .jobs
        };
        let jobs = next().into_iter().chain(next());
        jobs.map(|job| (job.deadline.unwrap() - now).as_secs()).collect()
    }

    #[test]
    fn who_has_little_time_left_is_let_go_once_others_were_late() {
        // In both cases the second run could answer in time.
        assert_eq!(taken(&[1000, 150, 2000, 3000]), [1000, 150]);
        assert_eq!(taken(&[50, 1000, 150, 2000, 3000]), [1000, 2000]);
        // The requests left fit into one run.
        assert_eq!(taken(&[50, 1000, 150]), [1000, 150]);
    }
}
