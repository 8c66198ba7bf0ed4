//! Learned positions.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use super::rows;
use crate::{Init, Module, Param, watch};

/// Adds a learned vector to each position of a sequence: `weight [max_len, dim]`, named like an
/// [`Embedding`](crate::Embedding)'s.
#[derive(Debug, Module)]
#[module(forward)]
pub struct LearnedPositions<B: Backend = AnyBackend> {
    /// `[max_len, dim]`.
    pub weight: Param<B>,
}

impl<B: Backend> LearnedPositions<B> {
    /// For sequences of up to `max_len`; normal with standard deviation 0.02 at first, as in GPT-2.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn new(max_len: usize, dim: usize, device: &Device<B>) -> Result<Self> {
        let init = Init::Normal { mean: 0.0, std: 0.02 };
        Ok(Self {
            weight: init.param([max_len, dim], device)?,
        })
    }

    /// `x […, S, dim]` plus the vectors of the positions from 0 on.
    ///
    /// # Errors
    /// When the sequence is longer than `max_len`, or shapes, dtypes or devices do not fit.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward_from(x, 0)
    }

    /// [`LearnedPositions::forward`] for a sequence that begins at position `offset`.
    ///
    /// # Errors
    /// As [`LearnedPositions::forward`].
    pub fn forward_from(&self, x: &Tensor<B>, offset: usize) -> Result<Tensor<B>> {
        watch::layer(self, x, || x.add(&rows(&self.weight.tensor(), x, offset)?))
            .map_err(|e| e.with_op("LearnedPositions"))
    }
}
