//! Average pooling with another divisor, and to a given size.

use polygrad_core::{Backend, Error, HostTensor, PoolParams, Result, Shape, SliceRange};

use super::{collected, context};
use crate::Tensor;

impl<B: Backend> Tensor<B> {
    /// Sum of each window of `[N, C, spatial…]`, divided by `divisor`: PyTorch's `avg_pool2d` and `avg_pool3d` with `divisor_override`.
    /// What lies outside counts as zeros, so `count_include_pad` has no bearing.
    ///
    /// # Errors
    /// When the divisor is 0; and as [`Tensor::avg_pool`].
    pub fn avg_pool_with_divisor(&self, params: &PoolParams, divisor: isize) -> Result<Self> {
        let fail = |e| context(e, "avg_pool", &[self]);
        if divisor == 0 {
            return Err(fail(Error::invalid("divisor_override must not be 0")));
        }
        let shape = self.shape();
        let pooled = params.output_shape(&shape).map_err(fail)?;
        // With the border made of zeros every window is full, and its mean is its sum by its volume.
        let mut border = vec![(0, 0); 2];
        let mut ranges = vec![SliceRange::full(shape[0]), SliceRange::full(shape[1])];
        let mut volume = 1;
        for axis in 2..shape.rank() {
            let (kernel, stride, padding) = (
                params.kernel[axis - 2],
                params.stride[axis - 2],
                params.padding[axis - 2],
            );
            let reach = pooled[axis]
                .saturating_sub(1)
                .saturating_mul(stride)
                .saturating_add(kernel);
            let length = reach.saturating_sub(padding);
            let used = length.min(shape[axis]);
            ranges.push(SliceRange::new(0, used, 1));
            border.push((padding, length - used));
            volume *= kernel;
        }
        let full = PoolParams {
            padding: [0; 3],
            ceil_mode: false,
            count_include_pad: true,
            ..*params
        };
        Self::in_wide([self], |[x]| {
            let means = x.slice(&ranges)?.pad(&border, 0.0).map_err(fail)?.avg_pool(&full)?;
            means * (volume as f64 / divisor as f64)
        })
    }

    /// The mean of `[N, C, spatial…]` over windows that are chosen so that the spatial axes have the extents `output_size` afterwards.
    /// Window `i` of `out` over an axis of `in` elements reaches from `⌊i · in / out⌋` to `⌈(i + 1) · in / out⌉`, as in PyTorch.
    ///
    /// # Errors
    /// When the rank is not 3 to 5, there is not one extent for each spatial axis, a spatial axis is empty, or the dtype is no float.
    pub fn adaptive_avg_pool(&self, output_size: &[usize]) -> Result<Self> {
        let fail = |e| context(e, "adaptive_avg_pool", &[self]);
        let shape = self.shape();
        let spatial = output_size.len();
        if !(1..=3).contains(&spatial) || shape.rank() != spatial + 2 || shape[2..].contains(&0) {
            return Err(fail(Error::shape(format!(
                "takes [N, C, spatial…] with {spatial} (1 to 3) spatial axes that have elements"
            ))));
        }
        if !self.dtype().is_float() {
            let error = Error::dtype(format!("{} is no float", self.dtype()));
            return Err(fail(error.with_hint("convert it with to_dtype")));
        }
        Shape::new(&[&shape[..2], output_size].concat()).map_err(fail)?;
        let pairs = || shape[2..].iter().zip(output_size);
        if pairs().all(|(from, &to)| to > 0 && from.is_multiple_of(to)) {
            let mut kernel = [1; 3];
            for (extent, (&from, &to)) in kernel.iter_mut().zip(pairs()) {
                *extent = from / to;
            }
            return self.avg_pool(&PoolParams::new(kernel));
        }
        // Windows of different sizes: each axis in turn is a product with a matrix of weights.
        Self::in_wide([self], |[x]| {
            let mut out = x.clone();
            for (axis, (&from, &to)) in pairs().enumerate() {
                if from != to {
                    let weights = window_weights(from, to).map_err(fail)?.cast(x.dtype());
                    let weights = Self::from_host(weights, &x.device())?;
                    let axis = axis as isize + 2;
                    out = out.transpose(axis, -1)?.matmul(&weights)?.transpose(axis, -1)?;
                }
            }
            Ok(out)
        })
    }
}

/// `[from, to]`: column `i` holds the weights of window `i`.
fn window_weights(from: usize, to: usize) -> Result<HostTensor> {
    let shape = Shape::new(&[from, to])?;
    let weights = collected(shape.numel(), |at| {
        let (row, i) = (at / to, at % to);
        let (start, end) = (i * from / to, ((i + 1) * from).div_ceil(to));
        if (start..end).contains(&row) {
            1.0 / (end - start) as f64
        } else {
            0.0
        }
    })?;
    HostTensor::new(shape, weights)
}
