//! Schedules that multiply the base rate by a factor that depends on the step.

use super::Schedule;

/// `base_lr · factor` for the first `total_iters` steps, then `base_lr`. The default does nothing.
#[derive(Clone, Copy, Debug)]
pub struct ConstantLR {
    /// Factor of the first steps.
    pub factor: f64,
    /// Number of steps.
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
    /// Divides the rate by ten after every `step_size` steps.
    pub const fn new(step_size: u64) -> Self {
        Self { step_size, gamma: 0.1 }
    }
}

impl Schedule for StepLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        base_lr * self.gamma.powf((step / self.step_size.max(1)) as f64)
    }
}

/// Linear from `base_lr · start_factor` to `base_lr · end_factor` at step `total_iters`, and constant afterwards: a
/// warm-up.
#[derive(Clone, Copy, Debug)]
pub struct LinearLR {
    /// Factor at step 0.
    pub start_factor: f64,
    /// Factor from step `total_iters` on.
    pub end_factor: f64,
    /// Number of steps.
    pub total_iters: u64,
}

impl LinearLR {
    /// From a third of the rate to the whole in `total_iters` steps, PyTorch's defaults.
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

/// `base_lr · gamma^step`.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialLR {
    /// Factor of each step.
    pub gamma: f64,
}

impl ExponentialLR {
    /// A schedule with this factor for each step.
    pub const fn new(gamma: f64) -> Self {
        Self { gamma }
    }
}

impl Schedule for ExponentialLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        base_lr * self.gamma.powf(step as f64)
    }
}

/// `base_lr · gammaⁿ`, where `n` counts the milestones that have been reached.
#[derive(Clone, Debug)]
pub struct MultiStepLR {
    /// Steps at which the rate changes, in any order. A step listed twice changes it twice.
    pub milestones: Vec<u64>,
    /// Factor of each change.
    pub gamma: f64,
}

impl MultiStepLR {
    /// Divides the rate by ten at each of these steps.
    pub fn new(milestones: impl Into<Vec<u64>>) -> Self {
        Self {
            milestones: milestones.into(),
            gamma: 0.1,
        }
    }
}

impl Schedule for MultiStepLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        let reached = self.milestones.iter().filter(|&&milestone| milestone <= step).count();
        base_lr * self.gamma.powf(reached as f64)
    }
}

/// `base_lr · (1 − step / total_iters)^power`, and 0 from step `total_iters` on. With `total_iters` 0 it does nothing.
#[derive(Clone, Copy, Debug)]
pub struct PolynomialLR {
    /// Number of steps.
    pub total_iters: u64,
    /// The exponent.
    pub power: f64,
}

impl PolynomialLR {
    /// Linear to 0, PyTorch's default power of 1.
    pub const fn new(total_iters: u64) -> Self {
        Self {
            total_iters,
            power: 1.0,
        }
    }
}

impl Schedule for PolynomialLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        if self.total_iters == 0 {
            return base_lr;
        }
        let left = self.total_iters.saturating_sub(step) as f64 / self.total_iters as f64;
        base_lr * left.powf(self.power)
    }
}

/// The base rate times a function of the step.
///
/// ```
/// use polygrad_nn::optim::{LambdaLR, Schedule};
///
/// let schedule = LambdaLR::new(|step| 0.5f64.powi(step as i32 / 10));
/// assert_eq!(schedule.lr(0.1, 25), 0.1 * 0.25);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LambdaLR<F> {
    factor: F,
}

impl<F: Fn(u64) -> f64 + Send + Sync> LambdaLR<F> {
    /// A schedule with this factor of the base rate, as a function of the step.
    pub const fn new(factor: F) -> Self {
        Self { factor }
    }
}

impl<F: Fn(u64) -> f64 + Send + Sync> Schedule for LambdaLR<F> {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        base_lr * (self.factor)(step)
    }
}
