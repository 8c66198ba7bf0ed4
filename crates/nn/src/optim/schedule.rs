//! Learning rate schedules: functions of the number of steps alone, so that there is no state to save.

use std::f64::consts::PI;

/// A learning rate that depends on the number of steps (or epochs, whatever the caller counts).
///
/// The formulas are those in PyTorch's documentation of `torch.optim.lr_scheduler`.
///
/// ```
/// use polygrad_nn::{CosineAnnealingLR, LinearLR, Schedule, SequentialLR};
///
/// let schedule = SequentialLR::new(LinearLR::warm_up(100)).then(100, CosineAnnealingLR::new(900));
/// assert_eq!(schedule.lr(0.1, 0), 0.1 / 3.0);
/// assert_eq!(schedule.lr(0.1, 100), 0.1);
/// // optimizer.set_lr(schedule.lr(0.1, step));
/// ```
pub trait Schedule: Send + Sync {
    /// The learning rate of step `step`, counted from 0, where `base_lr` is the optimizer's own.
    fn lr(&self, base_lr: f64, step: u64) -> f64;
}

/// `base_lr · factor` for the first `total_iters` steps, then `base_lr`. The default does nothing.
#[derive(Clone, Copy, Debug)]
pub struct ConstantLR {
    /// Factor of the first steps.
    pub factor: f64,
    /// How many steps.
    pub total_iters: u64,
}

impl Default for ConstantLR {
    fn default() -> Self {
        Self {
            factor: 1.0,
            total_iters: 0,
        }
    }
}

impl Schedule for ConstantLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        if step < self.total_iters {
            base_lr * self.factor
        } else {
            base_lr
        }
    }
}

/// `base_lr · gamma^⌊step / step_size⌋`.
#[derive(Clone, Copy, Debug)]
pub struct StepLR {
    /// Steps between two changes; 0 counts as 1.
    pub step_size: u64,
    /// Factor of each change.
    pub gamma: f64,
}

impl StepLR {
    /// A tenth after every `step_size` steps.
    pub const fn new(step_size: u64) -> Self {
        Self { step_size, gamma: 0.1 }
    }
}

impl Schedule for StepLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        base_lr * self.gamma.powf((step / self.step_size.max(1)) as f64)
    }
}

/// `eta_min + (base_lr − eta_min) · (1 + cos(π · step / t_max)) / 2`; past `t_max` the rate rises again.
///
/// Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2016).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingLR {
    /// Steps down to the smallest rate; 0 is there at once.
    pub t_max: u64,
    /// The smallest rate.
    pub eta_min: f64,
}

impl CosineAnnealingLR {
    /// Down to 0 in `t_max` steps.
    pub const fn new(t_max: u64) -> Self {
        Self { t_max, eta_min: 0.0 }
    }
}

impl Schedule for CosineAnnealingLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        if self.t_max == 0 {
            return self.eta_min;
        }
        // Only the place within a full wave counts; so the cosine is as exact after many waves as in the first.
        let phase = (step % (2 * self.t_max)) as f64 / self.t_max as f64;
        self.eta_min + (base_lr - self.eta_min) * (1.0 + (PI * phase).cos()) / 2.0
    }
}

/// From `base_lr · start_factor` in equal steps to `base_lr · end_factor` at step `total_iters`, and on with that: a warm-up.
#[derive(Clone, Copy, Debug)]
pub struct LinearLR {
    /// Factor at step 0.
    pub start_factor: f64,
    /// Factor from step `total_iters` on.
    pub end_factor: f64,
    /// How many steps.
    pub total_iters: u64,
}

impl LinearLR {
    /// From a third of the rate to the whole in `total_iters` steps, as PyTorch's defaults have it.
    pub const fn warm_up(total_iters: u64) -> Self {
        Self {
            start_factor: 1.0 / 3.0,
            end_factor: 1.0,
            total_iters,
        }
    }
}

impl Schedule for LinearLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        if step >= self.total_iters {
            return base_lr * self.end_factor;
        }
        let share = step as f64 / self.total_iters as f64;
        base_lr * (self.start_factor + (self.end_factor - self.start_factor) * share)
    }
}

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

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        (**self).lr(base_lr, step)
    }
}
