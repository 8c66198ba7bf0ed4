//! Gradients of convolution and pooling.

use super::wide::{is_narrow, widen};
use crate::{Axes, Backend, ConvParams, PoolParams, Result, Scalar, Shape, SliceRange};

/// See [`Backend::conv_input_grad`]: the gradient, spread out by the stride, convolved with the mirrored kernel.
pub(super) fn conv_input_grad<B: Backend>(
    grad: &B::Tensor,
    weight: &B::Tensor,
    input_shape: Shape,
    params: &ConvParams,
) -> Result<B::Tensor> {
    let kernel = B::shape(weight);
    let spatial = kernel.rank() - 2;
    if input_shape.numel() == 0 || B::shape(grad).numel() == 0 {
        return B::zeros(input_shape, B::dtype(grad), &B::device(grad));
    }
    let mut spread = grad.clone();
    for axis in 0..spatial {
        spread = dilate::<B>(&spread, axis + 2, params.stride[axis])?;
    }
    // Input position p contributes to output o through kernel element k if p = o * stride - padding + k * dilation.
    let spread_shape = B::shape(&spread);
    // A negative border is cut off after the padding, since a window may lie entirely in the padding
    // of the forward pass.
    let mut border = vec![(0, 0); spatial + 2];
    let mut ranges: Vec<_> = spread_shape.iter().map(|&dim| SliceRange::full(dim)).collect();
    for axis in 0..spatial {
        let reach = (kernel[axis + 2] - 1) * params.dilation[axis];
        let length = input_shape[axis + 2] + reach;
        let before = reach as isize - params.padding[axis] as isize;
        let after = length as isize - before - spread_shape[axis + 2] as isize;
        border[axis + 2] = (before.max(0) as usize, after.max(0) as usize);
        ranges[axis + 2] = SliceRange::new(before.min(0).unsigned_abs(), length, 1);
    }
    let spread = B::slice(&B::pad(&spread, &border, Scalar::Float(0.0))?, &ranges)?;
    let mirrored = mirrored_weight::<B>(weight, params.groups)?;
    let transposed = ConvParams {
        stride: [1; 3],
        padding: [0; 3],
        ..*params
    };
    B::conv(&spread, &mirrored, None, None, None, &transposed)
}

/// See [`Backend::conv_weight_grad`]: input and gradient, with batch and channels exchanged, convolved with each other.
pub(super) fn conv_weight_grad<B: Backend>(
    grad: &B::Tensor,
    x: &B::Tensor,
    weight_shape: Shape,
    params: &ConvParams,
) -> Result<B::Tensor> {
    let rank = weight_shape.rank();
    if B::shape(grad).numel() == 0 {
        return B::zeros(weight_shape, B::dtype(grad), &B::device(grad));
    }
    let swap = Axes::new([1, 0].into_iter().chain(2..rank))?;
    let crossed = ConvParams {
        stride: params.dilation,
        dilation: params.stride,
        padding: params.padding,
        groups: 1,
    };
    let (inputs, outputs) = (weight_shape[1], weight_shape[0] / params.groups);
    let mut parts = Vec::with_capacity(params.groups);
    for group in 0..params.groups {
        let x = channels::<B>(x, group * inputs, inputs)?;
        let grad = channels::<B>(grad, group * outputs, outputs)?;
        let (x, grad) = (B::permute(&x, swap)?, B::permute(&grad, swap)?);
        let part = B::conv(&x, &grad, None, None, None, &crossed)?;
        // Strides may leave a margin at the end of the input that no window reaches, so the product may be too large.
        let ranges: Vec<_> = [inputs, outputs]
            .into_iter()
            .chain(weight_shape[2..].iter().copied())
            .map(SliceRange::full)
            .collect();
        parts.push(B::permute(&B::slice(&part, &ranges)?, swap)?);
    }
    B::concat(&parts.iter().collect::<Vec<_>>(), 0)
}

/// See [`Backend::max_pool_backward`].
pub(super) fn max_pool_backward<B: Backend>(
    grad: &B::Tensor,
    indices: &B::Tensor,
    input_shape: Shape,
) -> Result<B::Tensor> {
    let rank = input_shape.rank();
    let flat = |shape: &Shape| Shape::from([shape[0], shape[1], shape[2..rank].iter().product()]);
    let plane = flat(&B::shape(grad));
    let zeros = B::zeros(flat(&input_shape), B::dtype(grad), &B::device(grad))?;
    let out = B::scatter_add(&zeros, 2, &B::reshape(indices, plane)?, &B::reshape(grad, plane)?)?;
    B::reshape(&out, input_shape)
}

/// See [`Backend::avg_pool_backward`]: each window's share, spread by a transposed convolution with ones.
pub(super) fn avg_pool_backward<B: Backend>(
    grad: &B::Tensor,
    input_shape: Shape,
    params: &PoolParams,
) -> Result<B::Tensor> {
    if is_narrow::<B>(grad) {
        return B::cast(
            &B::avg_pool_backward(&widen::<B>(grad)?, input_shape, params)?,
            B::dtype(grad),
        );
    }
    let (dtype, device) = (B::dtype(grad), B::device(grad));
    if B::shape(grad).numel() == 0 {
        return B::zeros(input_shape, dtype, &device);
    }
    let rank = input_shape.rank();
    let out_shape = B::shape(grad);
    let mut share = grad.clone();
    for axis in 2..rank {
        let counts = crate::HostTensor::new(
            axis_shape(rank, axis, out_shape[axis]),
            (0..out_shape[axis])
                .map(|i| 1.0 / window_count(i, input_shape[axis], axis - 2, params))
                .collect::<Vec<f64>>(),
        )?;
        // Rounded on the host: a backend need not have f64.
        share = B::mul(&share, &B::from_host(counts.cast(dtype), &device)?)?;
    }
    // Each channel is a plane of a batch with one channel. In ceil mode the last window may extend past the padded
    // input: the transposed convolution runs over an input large enough to hold it, and the excess is cut off.
    let planes = input_shape[0] * input_shape[1];
    let as_planes = |shape: &Shape| -> Result<Shape> {
        let mut dims = vec![planes, 1];
        dims.extend_from_slice(&shape[2..]);
        Shape::new(&dims)
    };
    let conv = ConvParams {
        stride: params.stride,
        padding: [0; 3],
        dilation: [1; 3],
        groups: 1,
    };
    let mut kernel = as_planes(&input_shape)?.with_dim(0, 1);
    let mut reach = as_planes(&input_shape)?;
    let mut ranges = vec![SliceRange::full(planes), SliceRange::full(1)];
    for axis in 2..rank {
        kernel.dims_mut()[axis] = params.kernel[axis - 2];
        let covered = (out_shape[axis] - 1) * params.stride[axis - 2] + params.kernel[axis - 2];
        let padding = params.padding[axis - 2];
        reach.dims_mut()[axis] = covered.max(input_shape[axis] + padding);
        ranges.push(SliceRange::new(padding, input_shape[axis], 1));
    }
    let ones = B::full(kernel, Scalar::Float(1.0), dtype, &device)?;
    let share = B::reshape(&share, as_planes(&out_shape)?)?;
    let out = B::conv_input_grad(&share, &ones, reach, &conv)?;
    B::reshape(&B::slice(&out, &ranges)?, input_shape)
}

/// The divisor of a window's mean along one axis.
fn window_count(position: usize, dim: usize, axis: usize, params: &PoolParams) -> f64 {
    let padding = params.padding[axis];
    let start = position * params.stride[axis];
    let end = start + params.kernel[axis];
    let count = if params.count_include_pad {
        end.min(dim + 2 * padding) - start
    } else {
        end.min(dim + padding) - start.max(padding)
    };
    count as f64
}

/// A shape of extent `dim` along one axis, and 1 along the others.
fn axis_shape(rank: usize, axis: usize, dim: usize) -> Shape {
    let mut out = Shape::SCALAR;
    for i in 0..rank {
        out = match Shape::new(&[out.dims(), &[if i == axis { dim } else { 1 }]].concat()) {
            Ok(shape) => shape,
            Err(_) => unreachable!("as many axes as a shape that exists"),
        };
    }
    out
}

/// Puts `step - 1` zeros between the elements along an axis.
fn dilate<B: Backend>(x: &B::Tensor, axis: usize, step: usize) -> Result<B::Tensor> {
    let shape = B::shape(x);
    if step == 1 {
        return Ok(x.clone());
    }
    // [outer, dim, inner] gets zeros after each element: pad a new axis after dim, merge, and cut off the last zeros.
    let outer = shape[..axis].iter().product();
    let inner = shape[axis + 1..].iter().product();
    let dim = shape[axis];
    let apart = B::reshape(x, Shape::from([outer, dim, 1, inner]))?;
    let padded = B::pad(&apart, &[(0, 0), (0, 0), (0, step - 1), (0, 0)], Scalar::Float(0.0))?;
    let merged = B::reshape(&padded, Shape::from([outer, dim * step, inner]))?;
    let length = (dim - 1) * step + 1;
    let ranges = [
        SliceRange::full(outer),
        SliceRange::new(0, length, 1),
        SliceRange::full(inner),
    ];
    B::reshape(&B::slice(&merged, &ranges)?, shape.with_dim(axis, length))
}

/// `[O, C / g, k…]` to `[C, O / g, k reversed…]`.
fn mirrored_weight<B: Backend>(weight: &B::Tensor, groups: usize) -> Result<B::Tensor> {
    let shape = B::shape(weight);
    let rank = shape.rank();
    let ranges: Vec<_> = shape
        .iter()
        .enumerate()
        .map(|(axis, &dim)| {
            if axis < 2 {
                SliceRange::full(dim)
            } else {
                SliceRange::new(dim.saturating_sub(1), dim, -1)
            }
        })
        .collect();
    let reversed = B::slice(weight, &ranges)?;
    let (outputs, inputs) = (shape[0] / groups, shape[1]);
    let kernel = &shape[2..];
    let split = Shape::new(&[&[groups, outputs, inputs], kernel].concat())?;
    let swap = Axes::new([0, 2, 1].into_iter().chain(3..rank + 1))?;
    let merged = Shape::new(&[&[groups * inputs, outputs], kernel].concat())?;
    B::reshape(&B::permute(&B::reshape(&reversed, split)?, swap)?, merged)
}

fn channels<B: Backend>(x: &B::Tensor, start: usize, len: usize) -> Result<B::Tensor> {
    let ranges: Vec<_> = B::shape(x)
        .iter()
        .enumerate()
        .map(|(axis, &dim)| {
            if axis == 1 {
                SliceRange::new(start, len, 1)
            } else {
                SliceRange::full(dim)
            }
        })
        .collect();
    B::slice(x, &ranges)
}
