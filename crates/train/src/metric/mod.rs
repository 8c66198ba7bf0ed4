//! Metrics: how good predictions are.

mod classes;
mod numbers;
mod scores;

use polygrad_core::{Error, ErrorKind, Result};
use polygrad_tensor::Tensor;

pub use classes::{Accuracy, Average, F1, JaccardIndex, Precision, Recall};
pub use numbers::{MeanAbsoluteError, MeanSquaredError, R2Score, RootMeanSquaredError};
pub use scores::{Auroc, Perplexity};

/// A measure of predictions over all batches since the last reset. Names and definitions are those of torchmetrics and
/// scikit-learn.
///
/// Metrics are never part of the gradient graph. Your own metrics implement this trait and `Clone`; their state is what
/// they need to continue in a resumed run.
pub trait Metric: CloneMetric {
    /// Its name in tables and files, such as `accuracy`: without commas and line breaks.
    fn name(&self) -> &str;

    /// Adds the predictions of a batch.
    ///
    /// # Errors
    /// Predictions and targets that do not fit each other or this metric; errors of the device.
    fn update(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()>;

    /// The value; NaN if nothing was added or it is not defined.
    fn value(&self) -> f64;

    /// Forgets all predictions.
    fn reset(&mut self);

    /// Whether larger is better.
    fn higher_is_better(&self) -> bool;

    /// A value as text. Default: four decimal places.
    fn shown(&self, value: f64) -> String {
        format!("{value:.4}")
    }

    /// Its accumulated state, as numbers.
    fn state(&self) -> Vec<f64>;

    /// Continues from a state.
    ///
    /// # Errors
    /// A state from another metric.
    fn load_state(&mut self, state: &[f64]) -> Result<()>;

    /// Adds the state of another process, as if its predictions had been added here.
    ///
    /// # Errors
    /// A state from another metric. The default fails, since the metric cannot do this, which training with several
    /// processes needs.
    fn merge(&mut self, state: &[f64]) -> Result<()> {
        let _ = state;
        let message = format!(
            "the metric {} cannot be put together from several processes",
            self.name()
        );
        Err(Error::unsupported(message).with_hint("implement Metric::merge"))
    }
}

/// Cloning behind a pointer, for everything that is `Clone`.
pub trait CloneMetric {
    /// A copy, including everything added so far.
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

/// The error for a state that does not fit.
fn foreign(metric: &str, state: &[f64]) -> Error {
    Error::new(
        ErrorKind::StateDict,
        format!("{} numbers are no state of the metric {metric}", state.len()),
    )
}

/// The error for predictions and targets that do not fit.
fn unfit(metric: &str, predictions: &Tensor, targets: &Tensor, hint: &'static str) -> Error {
    Error::shape("the predictions do not fit the targets")
        .with_op(metric.to_owned())
        .with_operands([
            (predictions.shape(), predictions.dtype()),
            (targets.shape(), targets.dtype()),
        ])
        .with_hint(hint)
}
