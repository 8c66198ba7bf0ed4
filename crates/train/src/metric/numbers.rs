//! Metrics of numbers.

use polygrad_core::Result;
use polygrad_tensor::Tensor;

use super::{Metric, foreign, unfit};

/// Sums over pairs of numbers, from which the metrics are computed.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    absolute: f64,
    square: f64,
    /// Mean of the targets, and the sum of their squared deviations from it.
    mean: f64,
    spread: f64,
}

impl Sums {
    fn update(&mut self, metric: &str, predictions: &Tensor, targets: &Tensor) -> Result<()> {
        if predictions.shape() != targets.shape() {
            return Err(unfit(metric, predictions, targets, "both have the same shape"));
        }
        for (prediction, target) in predictions.to_f64_vec()?.into_iter().zip(targets.to_f64_vec()?) {
            let error = prediction - target;
            self.count += 1.0;
            self.absolute += error.abs();
            self.square += error * error;
            // Welford, "Note on a method for calculating corrected sums of squares and products" (1962).
            let before = target - self.mean;
            self.mean += before / self.count;
            self.spread += before * (target - self.mean);
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        let count = self.count + other.count;
        if other.count == 0.0 {
            return;
        }
        // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
        let apart = other.mean - self.mean;
        *self = Self {
            count,
            absolute: self.absolute + other.absolute,
            square: self.square + other.square,
            mean: self.mean + apart * other.count / count,
            spread: self.spread + other.spread + apart * apart * self.count * other.count / count,
        };
    }
}

macro_rules! of_numbers {
    ($($(#[$doc:meta])* $metric:ident $name:literal, $higher:literal, $value:expr;)*) => {$(
        $(#[$doc])*
        /// Predictions and targets have the same shape.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $metric(Sums);

        impl $metric {
            /// The metric, without predictions yet.
            pub fn new() -> Self {
                Self::default()
            }
        }

        impl Metric for $metric {
            fn name(&self) -> &str {
                $name
            }

            fn update(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()> {
                self.0.update($name, predictions, targets)
            }

            fn value(&self) -> f64 {
                let value: fn(&Sums) -> f64 = $value;
                value(&self.0)
            }

            fn reset(&mut self) {
                self.0 = Sums::default();
            }

            fn higher_is_better(&self) -> bool {
                $higher
            }

            fn state(&self) -> Vec<f64> {
                let Sums { count, absolute, square, mean, spread } = self.0;
                vec![count, absolute, square, mean, spread]
            }

            fn load_state(&mut self, state: &[f64]) -> Result<()> {
                let &[count, absolute, square, mean, spread] = state else {
                    return Err(foreign($name, state));
                };
                self.0 = Sums { count, absolute, square, mean, spread };
                Ok(())
            }

            fn merge(&mut self, state: &[f64]) -> Result<()> {
                let mut other = Self::new();
                other.load_state(state)?;
                self.0.merge(other.0);
                Ok(())
            }
        }
    )*};
}

of_numbers! {
    /// The mean of `|prediction - target|`.
    MeanAbsoluteError "mae", false, |sums| sums.absolute / sums.count;
    /// The mean of `(prediction - target)²`.
    MeanSquaredError "mse", false, |sums| sums.square / sums.count;
    /// The square root of the mean of `(prediction - target)²`.
    RootMeanSquaredError "rmse", false, |sums| (sums.square / sums.count).sqrt();
    /// The coefficient of determination: 1 for predictions without error, 0 for those no better than the targets' mean.
    R2Score "r2", true, |sums| 1.0 - sums.square / sums.spread;
}
