//! Learning rate schedules. Most are functions of the number of steps only, so that they have no state to save; one
//! depends on a metric.

mod compose;
mod cosine;
mod cyclic;
mod factor;
mod one_cycle;
mod plateau;

use polygrad_tensor::{Backend, Result};

use crate::optim::Optimizer;

pub use compose::{ChainedScheduler, SequentialLR};
pub use cosine::{CosineAnnealingLR, CosineAnnealingWarmRestarts};
pub use cyclic::{CyclicLR, CyclicMode};
pub use factor::{ConstantLR, ExponentialLR, LambdaLR, LinearLR, MultiStepLR, PolynomialLR, StepLR};
pub use one_cycle::{AnnealStrategy, OneCycleLR};
pub use plateau::{PlateauMode, ReduceLROnPlateau, ReduceLROnPlateauConfig, ThresholdMode};

/// A learning rate that depends on the number of steps (or epochs, or whatever else the caller counts).
///
/// The formulas are those in PyTorch's documentation of `torch.optim.lr_scheduler`.
///
/// ```
/// use polygrad_nn::optim::{CosineAnnealingLR, LinearLR, Schedule, SequentialLR};
///
/// let schedule = SequentialLR::new(LinearLR::warm_up(100)).then(100, CosineAnnealingLR::new(900));
/// assert_eq!(schedule.lr(0.1, 0), 0.1 / 3.0);
/// assert_eq!(schedule.lr(0.1, 100), 0.1);
/// // Each step: schedule.apply(&mut optimizer, step)?;
/// ```
pub trait Schedule: Send + Sync {
    /// The learning rate of step `step`, counted from 0; `base_lr` is the optimizer's own.
    fn lr(&self, base_lr: f64, step: u64) -> f64;

    /// Sets the rate of every group of an optimizer for step `step`, each from its own base rate.
    ///
    /// # Errors
    /// When the numbers of base rates and groups differ, which never happens for this crate's optimizers.
    fn apply<B: Backend>(&self, optimizer: &mut (impl Optimizer<B> + ?Sized), step: u64) -> Result<()>
    where
        Self: Sized,
    {
        let base_lrs = optimizer.base_lrs();
        let lrs: Vec<f64> = base_lrs.into_iter().map(|base_lr| self.lr(base_lr, step)).collect();
        optimizer.set_lrs(&lrs)
    }
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        (**self).lr(base_lr, step)
    }
}

impl<S: Schedule + ?Sized> Schedule for &S {
    fn lr(&self, base_lr: f64, step: u64) -> f64 {
        (**self).lr(base_lr, step)
    }
}
