//! The one-cycle schedule.

use std::f64::consts::PI;

use super::Schedule;

/// Rises from `base_lr / div_factor` to `base_lr`, and falls to `base_lr / (div_factor · final_div_factor)`, where it
/// stays from the last step on. As PyTorch's `OneCycleLR`, whose `max_lr` is the base rate here, so that each group of
/// parameters has its own.
///
/// The momentum moves in the opposite direction. PyTorch sets it along with the rate (`cycle_momentum`); here the
/// caller does:
///
/// ```
/// # use polygrad_nn::optim::{OneCycleLR, Optimizer, SGD, Schedule};
/// # use polygrad_tensor::{Backend, Result};
/// # fn run<B: Backend>(mut optimizer: SGD<B>, step: u64) -> Result<()> {
/// let schedule = OneCycleLR::new(1000);
/// // Each step:
/// schedule.apply(&mut optimizer, step)?;
/// optimizer.set_momentum(schedule.momentum(step))?;
/// # Ok(())
/// # }
/// ```
///
/// Source: Smith and Topin, "Super-convergence: very fast training of neural networks using large learning rates"
/// (2017).
#[derive(Clone, Copy, Debug)]
pub struct OneCycleLR {
    /// Number of steps of the cycle.
    pub total_steps: u64,
    /// Share of the steps in which the rate rises. Default: 0.3.
    pub pct_start: f64,
    /// The shape of rise and fall. Default: a cosine.
    pub anneal_strategy: AnnealStrategy,
    /// Whether the fall first mirrors the rise, and a third phase then continues to the smallest rate. Default: false.
    pub three_phase: bool,
    /// The base rate divided by the first rate. Default: 25.
    pub div_factor: f64,
    /// The first rate divided by the last one. Default: 10,000.
    pub final_div_factor: f64,
    /// The momentum at the largest rate. Default: 0.85.
    pub base_momentum: f64,
    /// The momentum at both ends. Default: 0.95.
    pub max_momentum: f64,
}

/// How a value changes from one end of a phase to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnnealStrategy {
    /// Along half a period of a cosine.
    #[default]
    Cos,
    /// Linearly.
    Linear,
}

impl AnnealStrategy {
    fn between(self, start: f64, end: f64, share: f64) -> f64 {
        match self {
            Self::Cos => end + (start - end) / 2.0 * (1.0 + (PI * share).cos()),
            Self::Linear => (end - start) * share + start,
        }
    }
}

/// The last step of a phase, with rate and momentum at its beginning and end.
struct Phase {
    end: f64,
    lr: (f64, f64),
    momentum: (f64, f64),
}

impl OneCycleLR {
    /// One cycle of `total_steps` steps, with PyTorch's defaults.
    pub const fn new(total_steps: u64) -> Self {
        Self {
            total_steps,
            pct_start: 0.3,
            anneal_strategy: AnnealStrategy::Cos,
            three_phase: false,
            div_factor: 25.0,
            final_div_factor: 1e4,
            base_momentum: 0.85,
            max_momentum: 0.95,
        }
    }

    /// The momentum of step `step`, counted from 0: for [`SGD::set_momentum`](crate::optim::SGD::set_momentum) or
    /// [`Adam::set_beta1`](crate::optim::Adam::set_beta1).
    pub fn momentum(&self, step: u64) -> f64 {
        self.value(1.0, step, |phase| phase.momentum)
    }

    fn phases(&self, max_lr: f64) -> Vec<Phase> {
        let first = max_lr / self.div_factor;
        let last = first / self.final_div_factor;
        let (low, high) = (self.base_momentum, self.max_momentum);
        let total = self.total_steps as f64;
        let top = self.pct_start * total - 1.0;
        let phase = |end, lr, momentum| Phase { end, lr, momentum };
        let rise = phase(top, (first, max_lr), (high, low));
        if self.three_phase {
            let fall = phase(2.0 * top, (max_lr, first), (low, high));
            vec![rise, fall, phase(total - 1.0, (first, last), (high, high))]
        } else {
            vec![rise, phase(total - 1.0, (max_lr, last), (low, high))]
        }
    }

    fn value(&self, max_lr: f64, step: u64, ends: impl Fn(&Phase) -> (f64, f64)) -> f64 {
        let phases = self.phases(max_lr);
        // After the end the last value is kept.
        let step = step.min(self.total_steps.saturating_sub(1)) as f64;
        let mut begin = 0.0;
        let mut value = 0.0;
        for phase in &phases {
            let (from, to) = ends(phase);
            let length = phase.end - begin;
            let share = if length > 0.0 {
                ((step - begin) / length).min(1.0)
            } else {
                1.0
            };
            value = self.anneal_strategy.between(from, to, share);
            if step <= phase.end {
                break;
            }
            begin = phase.end;
        }
        value
    }
}

impl Schedule for OneCycleLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        self.value(base_lr, step, |phase| phase.lr)
    }
}
