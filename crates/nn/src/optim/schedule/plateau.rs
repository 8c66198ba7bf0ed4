//! Lowers the rate when a metric stops improving.

use polygrad_tensor::{Backend, Error, ErrorKind, HostTensor, Result};

use crate::StateDict;
use crate::optim::Optimizer;
use crate::optim::common::{check, count_in, number_in};
use crate::options::options;

/// Whether a metric should fall or rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlateauMode {
    /// Smaller is better, as for a loss.
    #[default]
    Min,
    /// Larger is better, as for an accuracy.
    Max,
}

/// How the threshold of a [`ReduceLROnPlateau`] is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThresholdMode {
    /// Relative to the size of the best metric so far, whatever its sign.
    #[default]
    Rel,
    /// As an absolute difference.
    Abs,
}

options! {
    /// Options of [`ReduceLROnPlateau`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug)]
    pub struct ReduceLROnPlateauConfig {
        /// Divides the rate by ten after more than 10 steps without improvement.
        pub const fn new(mode: PlateauMode);
        /// Factor of each change, in `[0, 1)`.
        factor: f64 = 0.1;
        /// Number of steps without improvement that are tolerated; the next one lowers the rate.
        patience: u64 = 10;
        /// The least improvement that counts.
        threshold: f64 = 1e-4;
        /// Whether the threshold is a share of the best metric or a difference. Default: a share.
        threshold_mode: ThresholdMode = ThresholdMode::Rel;
        /// Number of steps after a change during which steps without improvement do not count.
        cooldown: u64 = 0;
        /// Lower limit of each group's rate.
        min_lr: f64 = 0.0;
        /// Changes that are not larger than this are not made.
        eps: f64 = 1e-8;
    }
}

impl ReduceLROnPlateauConfig {
    /// The schedule, before its first step.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn build(self) -> Result<ReduceLROnPlateau> {
        check("factor", self.factor, 0.0..1.0)?;
        check("threshold", self.threshold, 0.0..)?;
        check("min_lr", self.min_lr, 0.0..)?;
        check("eps", self.eps, 0.0..)?;
        Ok(ReduceLROnPlateau {
            config: self,
            best: match self.mode {
                PlateauMode::Min => f64::INFINITY,
                PlateauMode::Max => f64::NEG_INFINITY,
            },
            num_bad_epochs: 0,
            cooldown_counter: 0,
        })
    }
}

/// Lowers the rates of an optimizer when a metric has not improved for some steps, as PyTorch's `ReduceLROnPlateau`.
/// Unlike a [`Schedule`](crate::optim::Schedule) it starts from the current rates, and has a state.
///
/// ```
/// # use polygrad_nn::optim::{Optimizer, PlateauMode, ReduceLROnPlateauConfig};
/// # use polygrad_tensor::{Backend, Result};
/// # fn run<B: Backend>(optimizer: &mut dyn Optimizer<B>, losses: &[f64]) -> Result<()> {
/// let mut plateau = ReduceLROnPlateauConfig::new(PlateauMode::Min).factor(0.5).patience(3).build()?;
/// for &validation_loss in losses {
///     plateau.step(validation_loss, optimizer)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReduceLROnPlateau {
    config: ReduceLROnPlateauConfig,
    best: f64,
    num_bad_epochs: u64,
    cooldown_counter: u64,
}

impl ReduceLROnPlateau {
    /// Records a metric (NaN counts as no improvement) and lowers the rates if it is time; returns whether it did.
    ///
    /// # Errors
    /// As [`Optimizer::set_lrs`].
    pub fn step<B: Backend>(&mut self, metric: f64, optimizer: &mut (impl Optimizer<B> + ?Sized)) -> Result<bool> {
        if self.is_better(metric) {
            self.best = metric;
            self.num_bad_epochs = 0;
        } else {
            self.num_bad_epochs += 1;
        }
        if self.cooldown_counter > 0 {
            self.cooldown_counter -= 1;
            self.num_bad_epochs = 0;
        }
        if self.num_bad_epochs <= self.config.patience {
            return Ok(false);
        }
        self.cooldown_counter = self.config.cooldown;
        self.num_bad_epochs = 0;
        let lrs: Vec<f64> = optimizer.lrs().into_iter().map(|lr| self.lowered(lr)).collect();
        optimizer.set_lrs(&lrs)?;
        Ok(true)
    }

    /// The best metric so far; infinite before the first one.
    pub fn best(&self) -> f64 {
        self.best
    }

    fn is_better(&self, metric: f64) -> bool {
        let threshold = self.config.threshold;
        // A share of the size: PyTorch multiplies by 1 ∓ threshold, which moves a negative best the wrong way.
        let share = threshold * self.best.signum();
        match (self.config.mode, self.config.threshold_mode) {
            (PlateauMode::Min, ThresholdMode::Rel) => metric < self.best * (1.0 - share),
            (PlateauMode::Min, ThresholdMode::Abs) => metric < self.best - threshold,
            (PlateauMode::Max, ThresholdMode::Rel) => metric > self.best * (1.0 + share),
            (PlateauMode::Max, ThresholdMode::Abs) => metric > self.best + threshold,
        }
    }

    fn lowered(&self, lr: f64) -> f64 {
        let new = (lr * self.config.factor).max(self.config.min_lr);
        if lr - new > self.config.eps { new } else { lr }
    }

    /// Its state: the best metric and its two counters, under PyTorch's names. The options are not part of it.
    pub fn state_dict(&self) -> StateDict {
        let counter = |count: u64| HostTensor::scalar(i64::try_from(count).unwrap_or(i64::MAX));
        [
            ("best".to_owned(), HostTensor::scalar(self.best)),
            ("num_bad_epochs".to_owned(), counter(self.num_bad_epochs)),
            ("cooldown_counter".to_owned(), counter(self.cooldown_counter)),
        ]
        .into_iter()
        .collect()
    }

    /// Continues from a state: completely, or not at all if there is an error.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`] when an entry is missing, or is not a single number.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let (number, count) = (|name| number_in(state, name), |name| count_in(state, name));
        let read = || -> std::result::Result<_, String> {
            Ok((number("best")?, count("num_bad_epochs")?, count("cooldown_counter")?))
        };
        let fail = |what| {
            Error::new(
                ErrorKind::StateDict,
                format!("the state does not fit ReduceLROnPlateau; {what}"),
            )
            .with_op("load_state_dict")
        };
        (self.best, self.num_bad_epochs, self.cooldown_counter) = read().map_err(fail)?;
        Ok(())
    }
}
