//! Rates that rise and fall.

use super::Schedule;

/// Repeatedly rises from the base rate to `max_lr` and falls again.
///
/// Source: Smith, "Cyclical learning rates for training neural networks" (2017).
#[derive(Clone, Copy, Debug)]
pub struct CyclicLR {
    /// The largest rate.
    pub max_lr: f64,
    /// Steps up; 0 counts as 1.
    pub step_size_up: u64,
    /// Steps down; 0 counts as 1.
    pub step_size_down: u64,
    /// The height of later cycles.
    pub mode: CyclicMode,
}

/// The height of the cycles of a [`CyclicLR`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CyclicMode {
    /// All to `max_lr`.
    Triangular,
    /// Each cycle rises half as far above the base rate as the one before.
    Triangular2,
    /// The height is multiplied by this factor in each step.
    ExpRange(f64),
}

impl CyclicLR {
    /// Rises for `step_size` steps and falls for as many, always to `max_lr`. PyTorch's default is 2,000 steps.
    pub const fn new(max_lr: f64, step_size: u64) -> Self {
        Self {
            max_lr,
            step_size_up: step_size,
            step_size_down: step_size,
            mode: CyclicMode::Triangular,
        }
    }
}

impl Schedule for CyclicLR {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        let (up, down) = (self.step_size_up.max(1), self.step_size_down.max(1));
        let whole = up.saturating_add(down);
        let (cycle, place) = (step / whole, step % whole);
        let height = if place <= up {
            place as f64 / up as f64
        } else {
            (whole - place) as f64 / down as f64
        };
        let scale = match self.mode {
            CyclicMode::Triangular => 1.0,
            CyclicMode::Triangular2 => 0.5f64.powf(cycle as f64),
            CyclicMode::ExpRange(gamma) => gamma.powf(step as f64),
        };
        base_lr + (self.max_lr - base_lr) * height * scale
    }
}
