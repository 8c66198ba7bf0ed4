//! Schedules made of others.

use super::Schedule;

/// One schedule after the other, each of which counts its steps from 0.
pub struct SequentialLR {
    /// Each with the step at which it begins.
    parts: Vec<(u64, Box<dyn Schedule>)>,
}

impl SequentialLR {
    /// Begins with a schedule.
    pub fn new(first: impl Schedule + 'static) -> Self {
        Self {
            parts: vec![(0, Box::new(first))],
        }
    }

    /// Goes over to another schedule at step `milestone`.
    #[must_use]
    pub fn then(mut self, milestone: u64, next: impl Schedule + 'static) -> Self {
        self.parts.push((milestone, Box::new(next)));
        self
    }
}

impl Schedule for SequentialLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        let begun = self.parts.iter().filter(|(start, _)| *start <= step);
        // Of parts that begin at the same step the last one counts.
        match begun.max_by_key(|(start, _)| *start) {
            Some((start, part)) => part.lr(base_lr, step - start),
            None => base_lr,
        }
    }
}

/// Several schedules at once: each takes the rate that the one before it gives as its base rate.
///
/// PyTorch's `ChainedScheduler` multiplies the present rate by what each of its schedules changes from step to step.
/// That comes to the same for all that multiply the base rate by a factor. It differs for those that do not: for a
/// [`CosineAnnealingLR`](crate::optim::CosineAnnealingLR) with an `eta_min`, which PyTorch lets the other schedules
/// move, too. And where a factor gets to 0, PyTorch's rate stays there.
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

    /// Applies another schedule to what comes out so far.
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
