//! Fixed positions.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

use super::table::Table;
use crate::{Module, watch};

/// Adds sines and cosines of the position to each element of a sequence: element 2i at position p gets `sin(p /
/// 10000^(2i / dim))`, element 2i + 1 the cosine. It has no parameters and nothing in the state dict.
///
/// Source: Vaswani et al., "Attention is all you need" (2017).
#[derive(Debug, Module)]
#[module(forward)]
pub struct SinusoidalPositions<B: Backend = AnyBackend> {
    #[module(skip)]
    table: Table<B>,
}

impl<B: Backend> SinusoidalPositions<B> {
    /// For sequences of up to `max_len`.
    ///
    /// # Errors
    /// When `dim` is odd, or memory runs out.
    pub fn new(max_len: usize, dim: usize) -> Result<Self> {
        if !dim.is_multiple_of(2) {
            return Err(Error::invalid(format!("dim = {dim} is odd")).with_op("SinusoidalPositions"));
        }
        let table = Table::new(max_len, dim, |place, column| {
            let angle = place as f64 / 1e4f64.powf((column - column % 2) as f64 / dim as f64);
            if column.is_multiple_of(2) {
                angle.sin()
            } else {
                angle.cos()
            }
        })?;
        Ok(Self { table })
    }

    /// `x […, S, dim]` plus the vectors of the positions from 0 on.
    ///
    /// # Errors
    /// When the sequence is longer than `max_len`, or shapes, dtypes or devices do not fit.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward_from(x, 0)
    }

    /// [`SinusoidalPositions::forward`] for a sequence that begins at position `offset`.
    ///
    /// # Errors
    /// As [`SinusoidalPositions::forward`].
    pub fn forward_from(&self, x: &Tensor<B>, offset: usize) -> Result<Tensor<B>> {
        watch::layer(self, x, || x.add(&self.table.rows(x, offset)?)).map_err(|e| e.with_op("SinusoidalPositions"))
    }
}
