//! Schedules composed of others.

use super::Schedule;

/// Schedules one after another; each counts its steps from 0.
pub struct SequentialLR {
    /// Each schedule with the step at which it begins.
    parts: Vec<(u64, Box<dyn Schedule>)>,
}

impl SequentialLR {
    /// Begins with a schedule.
    pub fn new(first: impl Schedule + 'static) -> Self {
        Self {
            parts: vec![(0, Box::new(first))],
        }
    }

    /// Switches to another schedule at step `milestone`.
    #[must_use]
    pub fn then(mut self, milestone: u64, next: impl Schedule + 'static) -> Self {
        self.parts.push((milestone, Box::new(next)));
        self
    }
}

impl Schedule for SequentialLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        let begun = self.parts.iter().filter(|(start, _)| *start <= step);
        // If several parts begin at the same step, the last one counts.
        match begun.max_by_key(|(start, _)| *start) {
            Some((start, part)) => part.lr(base_lr, step - start),
            None => base_lr,
        }
    }
}

/// Several schedules at once: the rate of each is the base rate of the next one.
///
/// PyTorch's `ChainedScheduler` instead multiplies the current rate by each schedule's relative change per step. The
/// two agree for all schedules that multiply the base rate by a factor. They differ for others, such as a
/// [`CosineAnnealingLR`](crate::optim::CosineAnnealingLR) with an `eta_min`, which other schedules also change in
/// PyTorch. And once a factor is 0, PyTorch's rate stays at 0.
pub struct ChainedScheduler {
    parts: Vec<Box<dyn Schedule>>,
}

impl ChainedScheduler {
    /// Begins with a schedule.
    pub fn new(first: impl Schedule + 'static) -> Self {
        Self {
            parts: vec![Box::new(first)],
        }
    }

    /// Applies another schedule to the rate so far.
    #[must_use]
    pub fn and(mut self, next: impl Schedule + 'static) -> Self {
        self.parts.push(Box::new(next));
        self
    }
}

impl Schedule for ChainedScheduler {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        self.parts.iter().fold(base_lr, |lr, part| part.lr(lr, step))
    }
}
