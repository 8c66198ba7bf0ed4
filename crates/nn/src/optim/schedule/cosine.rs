//! Annealing along a cosine.

use std::f64::consts::PI;

use super::Schedule;

/// `eta_min + (base_lr − eta_min) · (1 + cos(π · step / t_max)) / 2`; past `t_max` the rate rises again.
///
/// Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2016).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingLR {
    /// Number of steps down to the smallest rate; 0 reaches it at once.
    pub t_max: u64,
    /// The smallest rate.
    pub eta_min: f64,
}

impl CosineAnnealingLR {
    /// Falls to 0 in `t_max` steps.
    pub const fn new(t_max: u64) -> Self {
        Self { t_max, eta_min: 0.0 }
    }
}

impl Schedule for CosineAnnealingLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        if self.t_max == 0 {
            return self.eta_min;
        }
        // Only the position within a full period matters, so that the cosine is as exact after many periods as in the
        // first.
        let phase = (step % (2 * self.t_max)) as f64 / self.t_max as f64;
        self.eta_min + (base_lr - self.eta_min) * (1.0 + (PI * phase).cos()) / 2.0
    }
}

/// [`CosineAnnealingLR`] that restarts after `t_0` steps, then after `t_mult` times as many, and so on.
///
/// Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2016).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingWarmRestarts {
    /// Steps until the first restart; 0 counts as 1.
    pub t_0: u64,
    /// Factor of the length of each period over the one before; 0 counts as 1.
    pub t_mult: u64,
    /// The smallest rate.
    pub eta_min: f64,
}

impl CosineAnnealingWarmRestarts {
    /// Falls to 0, restarting every `t_0` steps.
    pub const fn new(t_0: u64) -> Self {
        Self {
            t_0,
            t_mult: 1,
            eta_min: 0.0,
        }
    }
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        let (mut length, times) = (self.t_0.max(1), self.t_mult.max(1));
        let mut place = step;
        if times == 1 {
            place %= length;
        }
        while place >= length {
            place -= length;
            length = length.saturating_mul(times);
        }
        let phase = place as f64 / length as f64;
        self.eta_min + (base_lr - self.eta_min) * (1.0 + (PI * phase).cos()) / 2.0
    }
}
