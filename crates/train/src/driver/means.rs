//! Means of a learner's measurements.

use serde::{Deserialize, Serialize};

use super::{Figures, Measured};

/// Means of measurements, ignoring NaN.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Means {
    names: Vec<String>,
    /// Sums and counts; those of the loss come first.
    sums: Vec<(f64, u64)>,
}

impl Means {
    pub(super) fn new(names: &[String]) -> Self {
        Self {
            names: names.to_vec(),
            sums: vec![(0.0, 0); names.len() + 1],
        }
    }

    pub(super) fn add(&mut self, measured: &Measured) {
        let values = std::iter::once(&measured.loss).chain(&measured.metrics);
        for ((sum, count), value) in self.sums.iter_mut().zip(values).filter(|(_, value)| !value.is_nan()) {
            *sum += value;
            *count += 1;
        }
    }

    pub(super) fn reset(&mut self) {
        self.sums.fill((0.0, 0));
    }

    fn mean(&self, at: usize) -> f64 {
        self.sums.get(at).map_or(f64::NAN, |(sum, count)| sum / *count as f64)
    }
}

impl Figures for Means {
    fn loss(&self) -> f64 {
        self.mean(0)
    }

    fn values(&self) -> Vec<f64> {
        (1..self.sums.len()).map(|at| self.mean(at)).collect()
    }

    fn shown(&self, metric: usize, value: f64) -> Option<String> {
        let text = match value.abs() {
            x if x >= 100.0 => format!("{value:.1}"),
            _ => format!("{value:.4}"),
        };
        Some(format!("{} {text}", self.names.get(metric)?))
    }
}
