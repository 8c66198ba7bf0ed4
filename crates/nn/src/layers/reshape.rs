//! Layers that only change the shape, or nothing.

use polygrad_tensor::{Backend, Result, Tensor};

use super::stateless::stateless;
use crate::watch;

/// Merges the axes from `start_dim` to `end_dim` into one; by default all but the first.
#[derive(Clone, Copy, Debug)]
pub struct Flatten {
    start: isize,
    end: isize,
}

impl Flatten {
    /// Merges all axes but the first: `[N, …]` to `[N, rest]`.
    pub const fn new() -> Self {
        Self { start: 1, end: -1 }
    }

    /// Merges the axes from `start_dim` to `end_dim`, both included; negative ones count from the back.
    pub const fn dims(start_dim: isize, end_dim: isize) -> Self {
        Self {
            start: start_dim,
            end: end_dim,
        }
    }

    /// The input with the merged shape.
    ///
    /// # Errors
    /// When an axis is out of range.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || x.flatten(self.start, self.end))
    }
}

impl Default for Flatten {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns its input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

impl Identity {
    /// The input.
    ///
    /// # Errors
    /// None.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || Ok(x.clone()))
    }
}

stateless!(Flatten, Identity);
