//! Metrics: how good predictions are.

mod classes;
mod numbers;
mod scores;

use polygrad_core::{Error, ErrorKind, Result};
use polygrad_tensor::Tensor;

pub use classes::{Accuracy, Average, F1, JaccardIndex, Precision, Recall};
pub use numbers::{MeanAbsoluteError, MeanSquaredError, R2Score, RootMeanSquaredError};
pub use scores::{Auroc, Perplexity};

/// A figure about predictions, over all batches since it was last reset. The names and definitions are those of
/// torchmetrics and scikit-learn.
///
/// Metrics are never part of the gradient graph. A metric of one's own implements this trait and `Clone`; its state is
/// what it needs to go on in a run that was stopped.
pub trait Metric: CloneMetric {
    /// What it is called in tables and files, such as `accuracy`: no comma, no line break.
    fn name(&self) -> &str;

    /// Takes in the predictions of a batch.
    ///
    /// # Errors
    /// Predictions and targets that do not fit each other, or this metric; those of the device.
    fn update(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()>;

    /// The figure; NaN where nothing was taken in, or it is not defined.
    fn value(&self) -> f64;

    /// Forgets all predictions.
    fn reset(&mut self);

    /// Whether larger is better.
    fn higher_is_better(&self) -> bool;

    /// A value of it as one reads it. Default: four digits behind the point.
    fn shown(&self, value: f64) -> String {
        format!("{value:.4}")
    }

    /// What it has taken in, as numbers.
    fn state(&self) -> Vec<f64>;

    /// Goes on from a state.
    ///
    /// # Errors
    /// One that another metric left.
    fn load_state(&mut self, state: &[f64]) -> Result<()>;

    /// Takes in what another process has, by its state: as if all had been taken in here.
    ///
    /// # Errors
    /// A state that another metric left; by default that the metric cannot do this, which training by
    /// several processes asks for.
    fn merge(&mut self, state: &[f64]) -> Result<()> {
        let _ = state;
        let message = format!(
            "the metric {} cannot be put together from several processes",
            self.name()
        );
        Err(Error::unsupported(message).with_hint("implement Metric::merge"))
    }
}

/// Metrics can be cloned behind a pointer, as whatever is `Clone`.
pub trait CloneMetric {
    /// A copy, with what was taken in so far.
    fn boxed(&self) -> Box<dyn Metric>;
}

impl<T: Metric + Clone + 'static> CloneMetric for T {
    fn boxed(&self) -> Box<dyn Metric> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Metric> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// A state that does not fit.
fn foreign(metric: &str, state: &[f64]) -> Error {
    Error::new(
        ErrorKind::StateDict,
        format!("{} numbers are no state of the metric {metric}", state.len()),
    )
}

/// Predictions and targets that do not fit.
fn unfit(metric: &str, predictions: &Tensor, targets: &Tensor, hint: &'static str) -> Error {
    Error::shape("the predictions do not fit the targets")
        .with_op(metric.to_owned())
        .with_operands([
            (predictions.shape(), predictions.dtype()),
            (targets.shape(), targets.dtype()),
        ])
        .with_hint(hint)
}
