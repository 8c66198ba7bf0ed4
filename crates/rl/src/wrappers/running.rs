use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Mean and variance of all that was seen so far, as Gymnasium's `RunningMeanStd`: in the beginning 0 and 1, with a weight of 1e-4.
///
/// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningMeanStd {
    mean: Vec<f64>,
    var: Vec<f64>,
    count: f64,
}

impl RunningMeanStd {
    /// Of rows of `len` numbers.
    pub fn new(len: usize) -> Self {
        Self {
            mean: vec![0.0; len],
            var: vec![1.0; len],
            count: 1e-4,
        }
    }

    /// The mean of each number.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The variance of each number.
    pub fn var(&self) -> &[f64] {
        &self.var
    }

    /// How many rows were seen, and 1e-4.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Sees more rows, one after another.
    ///
    /// # Errors
    /// When their numbers make no whole rows, or one is NaN or infinite.
    pub fn update(&mut self, rows: &[f32]) -> Result<()> {
        let width = self.mean.len();
        if width == 0 || !rows.len().is_multiple_of(width) {
            let message = format!("{} numbers make no rows of {width}", rows.len());
            return Err(Error::shape(message));
        }
        if let Some(x) = rows.iter().find(|x| !x.is_finite()) {
            return Err(Error::invalid(format!("statistics cannot take in {x}")));
        }
        self.update_with(rows.len() / width, |row, column| f64::from(rows[row * width + column]));
        Ok(())
    }

    pub(super) fn update_with(&mut self, rows: usize, value: impl Fn(usize, usize) -> f64) {
        if rows == 0 {
            return;
        }
        let (seen, more) = (self.count, rows as f64);
        let total = seen + more;
        for (column, (mean, var)) in self.mean.iter_mut().zip(&mut self.var).enumerate() {
            let values = || (0..rows).map(|row| value(row, column));
            let new_mean = values().sum::<f64>() / more;
            let squares = values().map(|x| (x - new_mean) * (x - new_mean)).sum::<f64>();
            let delta = new_mean - *mean;
            *mean += delta * more / total;
            *var = (*var * seen + squares + delta * delta * seen * more / total) / total;
        }
        self.count = total;
    }
}
