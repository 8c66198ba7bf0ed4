//! Annealing along a cosine.

use std::f64::consts::PI;

use super::Schedule;

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
