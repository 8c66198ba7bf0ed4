//! Convolution and pooling.

use std::cmp::Ordering;

use polygrad_core::{ConvParams, DType, Error, PoolParams, Result, Shape};

use crate::number::Sum;
use crate::positions::{coordinates, position};
use crate::support;
use crate::tensor::{ReferenceTensor, Values, collect};

/// How windows walk over an input's spatial axes.
struct Windows {
    /// The input's spatial extents.
    input: Shape,
    /// The window's extents.
    kernel: Shape,
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
}

impl Windows {
    /// The elements of the window at output coordinates `at`: the index of each in the kernel, and its position in the
    /// input's flattened spatial axes. Elements in the border are left out.
    fn elements(&self, at: &[usize]) -> Vec<(usize, usize)> {
        let inside = |k: usize| {
            let offset = coordinates(k, &self.kernel);
            let here: Option<Vec<usize>> = (0..self.kernel.rank())
                .map(|axis| {
                    (at[axis] * self.stride[axis] + offset[axis] * self.dilation[axis])
                        .checked_sub(self.padding[axis])
                        .filter(|&i| i < self.input[axis])
                })
                .collect();
            Some((k, position(&here?, &self.input)))
        };
        (0..self.kernel.numel()).filter_map(inside).collect()
    }
}

pub(crate) fn conv(x: &ReferenceTensor, weight: &ReferenceTensor, params: &ConvParams) -> Result<ReferenceTensor> {
    support::floats("conv", x.dtype())?;
    support::expect("conv", weight, x.dtype())?;
    let shape = params
        .output_shape(x.shape(), weight.shape())
        .map_err(|e| e.with_op("conv"))?;
    let windows = Windows {
        input: Shape::new(&x.shape()[2..])?,
        kernel: Shape::new(&weight.shape()[2..])?,
        stride: params.stride,
        padding: params.padding,
        dilation: params.dilation,
    };
    let (Values::Real(x_values), Values::Real(w)) = (x.values(), weight.values()) else {
        return Err(support::refused("conv", x.dtype()));
    };
    let (channels, group_channels) = (x.shape()[1], weight.shape()[1]);
    let group_outputs = weight.shape()[0] / params.groups;
    let (plane, taps) = (windows.input.numel(), windows.kernel.numel());
    let values = collect(shape.numel(), |i| {
        let at = coordinates(i, &shape);
        let (batch, output) = (at[0], at[1]);
        let first_channel = output / group_outputs * group_channels;
        let elements = windows.elements(&at[2..]);
        Ok(Sum::of((0..group_channels).flat_map(|c| {
            let x_plane = (batch * channels + first_channel + c) * plane;
            let w_plane = (output * group_channels + c) * taps;
            elements
                .iter()
                .map(move |&(k, at)| x_values[x_plane + at] * w[w_plane + k])
        })))
    })?;
    Ok(ReferenceTensor::real(shape, x.dtype(), values))
}

fn pool_windows(op: &'static str, x: &ReferenceTensor, params: &PoolParams) -> Result<(Windows, Shape)> {
    let shape = params.output_shape(x.shape()).map_err(|e| e.with_op(op))?;
    let windows = Windows {
        input: Shape::new(&x.shape()[2..])?,
        kernel: Shape::new(&params.kernel[..x.shape().rank() - 2])?,
        stride: params.stride,
        padding: params.padding,
        dilation: params.dilation,
    };
    Ok((windows, shape))
}

fn sees_nothing(op: &'static str, x: &ReferenceTensor) -> Error {
    Error::invalid("a window lies wholly in the border")
        .with_op(op)
        .with_operands([(*x.shape(), x.dtype())])
        .with_hint("use less padding or dilation")
}

pub(crate) fn max_pool(x: &ReferenceTensor, params: &PoolParams) -> Result<(ReferenceTensor, ReferenceTensor)> {
    support::numbers("max_pool", x.dtype())?;
    let (windows, shape) = pool_windows("max_pool", x, params)?;
    let plane = windows.input.numel();
    // Positions in the flattened spatial axes, and in the whole input.
    let extremes = collect(shape.numel(), |i| {
        let at = coordinates(i, &shape);
        let base = (at[0] * x.shape()[1] + at[1]) * plane;
        let elements = windows.elements(&at[2..]).into_iter().map(|(_, at)| at);
        // NaN is the largest, and the first of equal values wins.
        let larger = |best: usize, other: usize| match x.values().compare(base + other, base + best) {
            Ordering::Greater => other,
            _ => best,
        };
        let extreme = elements.reduce(larger).ok_or_else(|| sees_nothing("max_pool", x))?;
        Ok((extreme, base + extreme))
    })?;
    let values = x.pick(shape, |at| Ok(extremes[position(at, &shape)].1))?;
    let indices = extremes.iter().map(|&(in_plane, _)| in_plane as i64).collect();
    Ok((values, ReferenceTensor::int(shape, DType::I64, indices)))
}

pub(crate) fn avg_pool(x: &ReferenceTensor, params: &PoolParams) -> Result<ReferenceTensor> {
    support::floats("avg_pool", x.dtype())?;
    let (windows, shape) = pool_windows("avg_pool", x, params)?;
    let rank = windows.input.rank();
    if params.dilation[..rank].iter().any(|&dilation| dilation != 1) {
        return Err(Error::invalid("dilation must be 1").with_op("avg_pool"));
    }
    let Values::Real(values) = x.values() else {
        return Err(support::refused("avg_pool", x.dtype()));
    };
    let plane = windows.input.numel();
    let means = collect(shape.numel(), |i| {
        let at = coordinates(i, &shape);
        let base = (at[0] * x.shape()[1] + at[1]) * plane;
        let elements = windows.elements(&at[2..]);
        if elements.is_empty() {
            return Err(sees_nothing("avg_pool", x));
        }
        // The border counts, but not the elements beyond it, which a window may cover in ceil mode.
        let with_border = |axis: usize| {
            let start = at[axis + 2] * windows.stride[axis];
            let end = (start + windows.kernel[axis]).min(windows.input[axis] + 2 * windows.padding[axis]);
            end - start
        };
        let count = if params.count_include_pad {
            (0..rank).map(with_border).product()
        } else {
            elements.len()
        };
        Ok(Sum::of(elements.iter().map(|&(_, at)| values[base + at])) / count as f64)
    })?;
    Ok(ReferenceTensor::real(shape, x.dtype(), means))
}
