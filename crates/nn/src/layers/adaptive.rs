//! Pooling to a given size.

use polygrad_tensor::{Backend, Error, Result, Tensor};

use super::extent::Extent;
use super::stateless::stateless;
use crate::watch;

/// The mean over windows that are chosen so that the output has a given size, as [`AdaptiveAvgPool1d`] and [`AdaptiveAvgPool2d`].
///
/// Window `i` of `out` over an axis of `in` elements reaches from `⌊i · in / out⌋` to `⌈(i + 1) · in / out⌉`, as in PyTorch.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveAvgPool<const D: usize>([Option<usize>; D]);

/// Adaptive mean over `[N, C, L]`.
pub type AdaptiveAvgPool1d = AdaptiveAvgPool<1>;
/// Adaptive mean over `[N, C, H, W]`.
pub type AdaptiveAvgPool2d = AdaptiveAvgPool<2>;

impl<const D: usize> AdaptiveAvgPool<D> {
    /// Pools to `output_size`: one number for all spatial axes, or an array.
    pub fn new(output_size: impl Extent<D>) -> Self {
        Self(output_size.extent().map(Some))
    }

    /// Pools to `output_size`; an axis with `None` keeps its extent.
    pub const fn with_kept(output_size: [Option<usize>; D]) -> Self {
        Self(output_size)
    }

    /// `[N, C, spatial…]` to `[N, C, output_size…]`.
    ///
    /// # Errors
    /// When the rank is not `D + 2`, or a spatial axis is empty.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x))
    }

    fn compute<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let shape = x.shape();
        if shape.rank() != D + 2 {
            return Err(Error::shape(format!("it takes [N, C, spatial…] of rank {}", D + 2))
                .with_op("adaptive_avg_pool")
                .with_operands([(shape, x.dtype())]));
        }
        let output: [usize; D] = std::array::from_fn(|i| self.0[i].unwrap_or(shape[i + 2]));
        x.adaptive_avg_pool(&output)
    }
}

stateless!(AdaptiveAvgPool<D>);
