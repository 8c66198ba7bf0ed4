//! Numbers that change during training.

use serde::{Deserialize, Serialize};

/// A number that may change during training.
///
/// In a file, `0.1` is a constant, and `[1e-3, 0]` goes from the first to the second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "Written")]
pub enum Annealed {
    /// Always the same value.
    Constant(f64),
    /// Linear, from the first number at the beginning to the second at the end.
    Linear(f64, f64),
}

impl Annealed {
    /// The value after a share of the training, from 0 to 1.
    pub fn at(self, progress: f64) -> f64 {
        match self {
            Self::Constant(value) => value,
            Self::Linear(from, to) => from + (to - from) * progress.clamp(0.0, 1.0),
        }
    }

    pub(crate) fn all(self, holds: impl Fn(f64) -> bool) -> bool {
        match self {
            Self::Constant(value) => holds(value),
            Self::Linear(from, to) => holds(from) && holds(to),
        }
    }
}

impl From<f64> for Annealed {
    fn from(value: f64) -> Self {
        Self::Constant(value)
    }
}

/// The forms in which such a number can be written.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or [from, to]")]
enum Written {
    Constant(f64),
    Linear([f64; 2]),
    Named(Named),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Named {
    Constant(f64),
    Linear(f64, f64),
}

impl From<Written> for Annealed {
    fn from(written: Written) -> Self {
        match written {
            Written::Constant(value) | Written::Named(Named::Constant(value)) => Self::Constant(value),
            Written::Linear([from, to]) | Written::Named(Named::Linear(from, to)) => Self::Linear(from, to),
        }
    }
}
