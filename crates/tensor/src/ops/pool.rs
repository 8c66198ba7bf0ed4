//! Average pooling with another divisor, and pooling to a given size.

use std::ops::Range;

use polygrad_core::{Backend, Error, HostTensor, PoolParams, Result, Shape, SliceRange};

use super::{collected, context};
use crate::Tensor;
use crate::autocast::in_mode;

impl<B: Backend> Tensor<B> {
    /// Sum of each window of `[N, C, spatial…]`, divided by `divisor`: PyTorch's `avg_pool2d` and `avg_pool3d` with
    /// `divisor_override`. Elements outside count as zeros, so `count_include_pad` has no effect.
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
        // With a border of explicit zeros every window is full, and its mean is its sum divided by its volume.
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

    /// The mean of `[N, C, spatial…]` over windows chosen so that the result has the spatial extents `output_size`.
    /// Window `i` of `out` over an axis of `in` elements reaches from `⌊i · in / out⌋` to `⌈(i + 1) · in / out⌉`, as in
    /// PyTorch.
    ///
    /// # Errors
    /// When the rank is not 3 to 5, there is not one extent for each spatial axis, a spatial axis is empty, or the
    /// dtype is not a float.
    pub fn adaptive_avg_pool(&self, output_size: &[usize]) -> Result<Self> {
        let fail = |e| context(e, "adaptive_avg_pool", &[self]);
        let even = even_windows(&self.shape(), output_size).map_err(fail)?;
        if !self.dtype().is_float() {
            let error = Error::dtype(format!("{} is no float", self.dtype()));
            return Err(fail(error.with_hint("convert it with to_dtype")));
        }
        if let Some(params) = even {
            return self.avg_pool(&params);
        }
        // Windows of different sizes: each axis in turn is multiplied by a matrix of weights.
        let shape = self.shape();
        if shape.rank() == 5
            && let Some(x) = self.raised()?
        {
            return x.adaptive_avg_pool(output_size);
        }
        let averaged = |x: &Self| {
            let mut out = x.clone();
            for (axis, (&from, &to)) in shape[2..].iter().zip(output_size).enumerate() {
                if from != to {
                    let weights = window_weights(from, to).map_err(fail)?.cast(x.dtype());
                    let weights = Self::from_host(weights, &x.device())?;
                    let axis = axis as isize + 2;
                    out = out.transpose(axis, -1)?.matmul(&weights)?.transpose(axis, -1)?;
                }
            }
            Ok(out)
        };
        // These products compute a mean, which autocast must not run in 16 bits.
        in_mode(None, || Self::in_wide([self], |[x]| averaged(x)))
    }

    /// The largest value of `[N, C, spatial…]` over the windows of [`Tensor::adaptive_avg_pool`], and its position in
    /// the flattened spatial axes (i64). The first of equal values takes the gradient.
    ///
    /// # Errors
    /// When the rank is not 3 to 5, there is not one extent for each spatial axis, or a spatial axis is empty.
    pub fn adaptive_max_pool(&self, output_size: &[usize]) -> Result<(Self, Self)> {
        let fail = |e| context(e, "adaptive_max_pool", &[self]);
        let shape = self.shape();
        if shape.rank() == 5
            && let Some(x) = self.raised()?
        {
            return x.adaptive_max_pool(output_size);
        }
        if let Some(params) = even_windows(&shape, output_size).map_err(fail)? {
            return self.max_pool(&params);
        }
        // Windows of different sizes: each becomes a row of the longest window's size, in which a shorter window
        // repeats its last elements. The first of equal values stays the first.
        let longest: Vec<_> = shape[2..]
            .iter()
            .zip(output_size)
            .map(|(&from, &to)| longest_window(from, to))
            .collect();
        let (images, channels, length) = (shape[0], shape[1], longest.iter().product::<usize>());
        let rows = Shape::new(&[output_size, &longest].concat()).map_err(fail)?;
        let (count, out) = (rows.numel(), rows.numel() / length);
        let table = collected(count, |at| {
            let (mut i, mut k) = (at / length, at % length);
            let (mut place, mut stride) = (0, 1);
            for (axis, &longest) in longest.iter().enumerate().rev() {
                let (from, to) = (shape[axis + 2], output_size[axis]);
                let window = window(i % to, from, to);
                place += (window.start + k % longest).min(window.end - 1) * stride;
                (i, k, stride) = (i / to, k / longest, stride * from);
            }
            place as i64
        });
        let table = Self::from_vec(table.map_err(fail)?, [count], &self.device())?;
        let rows = self.flatten(2, -1)?.index_select(2, &table)?;
        let rows = rows.reshape([images, channels * out, length])?;
        let (values, places) = rows.max_pool(&PoolParams::new([length, 1, 1]))?;
        let table = table
            .reshape([1, out, length])?
            .expand([images * channels, out, length])?;
        let positions = table.gather(2, &places.reshape([images * channels, out, 1])?)?;
        let pooled = [&shape[..2], output_size].concat();
        Ok((values.reshape(&pooled[..])?, positions.reshape(&pooled[..])?))
    }
}

/// The pooling of `[N, C, spatial…]` to these extents, if all windows are of one size and lie side by side.
fn even_windows(shape: &Shape, output_size: &[usize]) -> Result<Option<PoolParams>> {
    let spatial = output_size.len();
    if !(1..=3).contains(&spatial) || shape.rank() != spatial + 2 || shape[2..].contains(&0) {
        return Err(Error::shape(format!(
            "takes [N, C, spatial…] with {spatial} (1 to 3) spatial axes that have elements"
        )));
    }
    Shape::new(&[&shape[..2], output_size].concat())?;
    let (mut kernel, mut even) = ([1; 3], true);
    for (extent, (&from, &to)) in kernel.iter_mut().zip(shape[2..].iter().zip(output_size)) {
        if from.checked_mul(to).is_none() {
            return Err(Error::shape(format!("an extent of {from} cannot become {to}")));
        }
        even &= to > 0 && from.is_multiple_of(to);
        *extent = from / to.max(1);
    }
    Ok(even.then(|| PoolParams::new(kernel)))
}

/// The size of the longest window, or 1 if there is none. The exact start of a window lies a multiple of `gcd / to`
/// after the start of its first element, at most `1 − gcd / to`.
fn longest_window(from: usize, to: usize) -> usize {
    if to == 0 {
        return 1;
    }
    let (mut gcd, mut rest) = (to, from);
    while rest > 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    (from + to - gcd).div_ceil(to)
}

/// Window `i` of `to` over an axis of `from` elements.
fn window(i: usize, from: usize, to: usize) -> Range<usize> {
    i * from / to..((i + 1) * from).div_ceil(to)
}

/// `[from, to]`: column `i` holds the weights of window `i`.
fn window_weights(from: usize, to: usize) -> Result<HostTensor> {
    let shape = Shape::new(&[from, to])?;
    let weights = collected(shape.numel(), |at| {
        let (row, i) = (at / to, at % to);
        let window = window(i, from, to);
        if window.contains(&row) {
            1.0 / window.len() as f64
        } else {
            0.0
        }
    })?;
    HostTensor::new(shape, weights)
}
