//! Pooling to a given size.

use polygrad_tensor::{Backend, Error, HostTensor, PoolParams, Result, Shape, Tensor};

use super::extent::{Extent, padded};
use super::stateless::stateless;

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
        let shape = x.shape();
        let fits = shape.rank() == D + 2 && shape[2..].iter().all(|&dim| dim > 0);
        if !fits {
            return Err(
                Error::shape(format!("it takes [N, C, spatial…] of rank {} with elements", D + 2))
                    .with_op("adaptive_avg_pool")
                    .with_operands([(shape, x.dtype())]),
            );
        }
        let input: [usize; D] = std::array::from_fn(|i| shape[i + 2]);
        let output: [usize; D] = std::array::from_fn(|i| self.0[i].unwrap_or(input[i]));
        let even = input.iter().zip(&output).all(|(i, &o)| o > 0 && i.is_multiple_of(o));
        if even {
            let window = std::array::from_fn(|i| input[i] / output[i]);
            return x.avg_pool(&PoolParams::new(padded::<D>(window, 1)));
        }
        // Windows of different sizes: each axis in turn is a product with a matrix of weights.
        let mut y = x.clone();
        for (axis, (&from, &to)) in input.iter().zip(&output).enumerate() {
            if from != to {
                let weights = Tensor::from_host(weights(from, to)?.cast(x.dtype()), &x.device())?;
                let axis = axis as isize - D as isize;
                y = y.transpose(axis, -1)?.matmul(&weights)?.transpose(axis, -1)?;
            }
        }
        Ok(y)
    }
}

/// `[from, to]`: column `i` holds the weights of window `i`.
fn weights(from: usize, to: usize) -> Result<HostTensor> {
    let mut values = vec![0.0f64; from * to];
    for i in 0..to {
        let (start, end) = (i * from / to, ((i + 1) * from).div_ceil(to));
        for row in start..end {
            values[row * to + i] = 1.0 / (end - start) as f64;
        }
    }
    HostTensor::new(Shape::from([from, to]), values)
}

stateless!(AdaptiveAvgPool<D>);
