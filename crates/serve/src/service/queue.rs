//! The requests that wait for a model.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sequence::Sequences;
use super::{Group, Inputs, Reply, Settings};
use crate::{Failure, Reason, SequenceStep, Signature};

/// A request that waits.
pub(super) struct Job {
    /// In the signature's order; none for the states of a sequence.
    pub(super) inputs: Inputs,
    pub(super) rows: usize,
    pub(super) group: Group,
    pub(super) priority: u64,
    pub(super) deadline: Option<Instant>,
    pub(super) sequence: Option<SequenceStep>,
    pub(super) since: Instant,
    pub(super) reply: Reply,
}

/// How fast requests are computed.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// The most rows of a run.
    pub(super) rows: usize,
    /// What a run takes, about.
    pub(super) time: Duration,
    /// So many runs may be under way.
    pub(super) threads: usize,
}

/// The most urgent first, and of those the oldest.
#[derive(Default)]
pub(super) struct Queue {
    /// In boxes, since a job is moved from hand to hand.
    jobs: VecDeque<Box<Job>>,
    /// Requests were late while more waited than are computed at once: not all can be answered. Those with little time left are let go for
    /// others then, since a run that takes a little longer than usual would make them late.
    is_overloaded: bool,
    /// Whether requests were refused since the last turn.
    has_refused: bool,
    pub(super) sequences: Sequences,
}

/// What is to be computed at once.
pub(super) struct Taken {
    #[expect(clippy::vec_box, reason = "they come in the boxes in which they waited")]
    pub(super) jobs: Vec<Box<Job>>,
    /// Too late, impossible, or, where there is no failure, given up.
    pub(super) dropped: Vec<(Box<Job>, Option<Failure>)>,
    /// Whether something is left that could be computed now, too.
    pub(super) leaves_more: bool,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether something waits that could be computed now.
    pub(super) fn is_ready(&self) -> bool {
        self.jobs
            .iter()
            .any(|job| self.sequences.is_free(job.sequence.as_ref()))
    }

    /// Whether a request has more rows than so many.
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
    /// Too many requests or sequences; a sequence that has not begun; while not all can be answered, a deadline before those that wait are
    /// computed, at this pace.
    pub(super) fn push(&mut self, job: Box<Job>, settings: &Settings, pace: Pace) -> Result<(), Failure> {
        self.admit(settings)?;
        let place = match self.jobs.back() {
            Some(last) if last.priority > job.priority => {
                self.jobs.partition_point(|other| other.priority <= job.priority)
            }
            _ => self.jobs.len(),
        };
        if self.is_overloaded
            && let Some(deadline) = job.deadline
        {
            let before: usize = self.jobs.iter().take(place).map(|job| job.rows).sum();
            let runs = u32::try_from(before / pace.rows / pace.threads).unwrap_or(u32::MAX);
            if deadline < job.since + pace.time.saturating_mul(runs.saturating_add(2)) {
                self.has_refused = true;
                return Err(late());
            }
        }
        if let Some(step) = &job.sequence {
            self.sequences.open(step, job.since, settings)?;
        }
        self.jobs.insert(place, job);
        Ok(())
    }

    /// The first request that can be computed, and others that can be computed with it. Those without a deadline may have waited for
    /// `patience`.
    pub(super) fn take(&mut self, signature: &Signature, pace: Pace, patience: Option<Duration>) -> Taken {
        let Pace {
            rows: max_rows, time, ..
        } = pace;
        let now = Instant::now();
        let mut taken = Taken {
            jobs: Vec::new(),
            dropped: Vec::new(),
            leaves_more: false,
        };
        let mut rows = 0;
        let mut i = 0;
        while i < self.jobs.len() {
            let job = &self.jobs[i];
            // What would be answered too late makes room for others. The last one is tried: the time is a guess.
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
                let failure = || match (job.deadline, patience) {
                    (None, Some(patience)) => waited(patience),
                    _ => late(),
                };
                self.sequences.skip(job.sequence.as_ref());
                let failure = is_late.then(failure);
                taken.dropped.push((job, failure));
                continue;
            }
            let fits = match taken.jobs.first() {
                None => true,
                Some(first) => rows + job.rows <= max_rows && first.group == job.group,
            };
            if !fits || !self.sequences.is_free(job.sequence.as_ref()) {
                i += 1;
                // A full batch is not searched on for.
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
        self.is_overloaded &= self.jobs.len() > max_rows || self.has_refused;
        self.has_refused = false;
        taken.leaves_more = self.is_ready();
        taken
    }
}

fn late() -> Failure {
    let message = "the deadline would have passed before the model had the answer";
    Failure::new(Reason::Late, message)
}

fn waited(patience: Duration) -> Failure {
    let message = format!(
        "the request waited for {} s, which is the model's limit where a request tells no timeout: tell a longer one, or come again \
         when fewer wait",
        patience.as_secs_f64()
    );
    Failure::new(Reason::Late, message)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const PACE: Pace = Pace {
        rows: 1,
        time: Duration::from_secs(100),
        threads: 1,
    };

    /// A queue to which requests come that have so many seconds left.
    struct Line {
        queue: Queue,
        now: Instant,
        waiting: Vec<oneshot::Receiver<Result<crate::service::Outputs, Failure>>>,
    }

    impl Line {
        fn new(seconds: &[u64]) -> Self {
            let mut line = Self {
                queue: Queue::default(),
                now: Instant::now(),
                waiting: Vec::new(),
            };
            assert!(seconds.iter().all(|&left| line.push(left)));
            line
        }

        /// Whether it was let in.
        fn push(&mut self, left: u64) -> bool {
            let (reply, answer) = oneshot::channel();
            self.waiting.push(answer);
            let job = Job {
                inputs: Inputs::new(),
                rows: 1,
                group: Group::new(),
                priority: 1,
                deadline: Some(self.now + Duration::from_secs(left)),
                sequence: None,
                since: self.now,
                reply,
            };
            self.queue.push(Box::new(job), &Settings::default(), PACE).is_ok()
        }

        /// The seconds of the one whose turn it is.
        fn take(&mut self) -> Option<u64> {
            let taken = self.queue.take(&Signature::default(), PACE, None);
            let deadline = taken.jobs.first()?.deadline?;
            Some((deadline - self.now).as_secs())
        }
    }

    #[test]
    fn who_has_little_time_left_is_let_go_once_others_were_late() {
        let taken = |seconds: &[u64]| {
            let mut line = Line::new(seconds);
            [line.take(), line.take()]
        };
        // The second run could answer in time in both cases.
        assert_eq!(taken(&[1000, 150, 2000, 3000]), [Some(1000), Some(150)]);
        assert_eq!(taken(&[50, 1000, 150, 2000, 3000]), [Some(1000), Some(2000)]);
        // No more than are computed at once are left.
        assert_eq!(taken(&[50, 1000, 150]), [Some(1000), Some(150)]);
    }

    #[test]
    fn who_cannot_be_answered_in_time_is_not_let_in_once_others_were_late() {
        let mut line = Line::new(&[1000, 1000]);
        assert!(line.push(150), "nobody was late yet");
        let mut line = Line::new(&[50, 1000, 1000, 1000]);
        assert_eq!(line.take(), Some(1000));
        // Two wait, whose runs and its own end after 300 s; 100 more are left for runs that take longer.
        assert!(!line.push(390));
        assert!(line.push(410));
        assert_eq!(line.take(), Some(1000));
        assert_eq!(line.take(), Some(1000));
        // One was refused before the first of these, none before the second.
        assert!(line.push(110));
    }
}
