//! Convolution and pooling.

use burn_backend::ops::{ConvOptions, ModuleOps};
use burn_wgpu::{CubeBackend, CubeTensor};
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearViewMut;
use polygrad_core::{ConvParams, DType, Error, PoolParams, Result, Scalar, Shape, decompose};

use crate::BurnWgpu;
use crate::wgpu::index::check;
use crate::wgpu::kernel::{addresses, room, units};
use crate::wgpu::tensor::{BurnWgpuTensor as T, ensure_room};

fn options<const N: usize>(params: &ConvParams) -> ConvOptions<N> {
    let first = |values: &[usize; 3]| -> [usize; N] { std::array::from_fn(|axis| values[axis]) };
    ConvOptions::new(
        first(&params.stride),
        first(&params.padding),
        first(&params.dilation),
        params.groups,
    )
}

pub(crate) fn conv(x: &T, weight: &T, params: &ConvParams) -> Result<T> {
    let (dtype, shape) = (x.dtype(), params.output_shape(&x.shape(), &weight.shape())?);
    if shape.numel() == 0 || weight.is_empty() || x.is_empty() {
        return T::full(shape, Scalar::Int(0), dtype, x.device());
    }
    ensure_room(&shape, dtype, x.device())?;
    let (a, b) = (x.operand(), weight.operand());
    let out = match shape.rank() {
        3 => CubeBackend::conv1d(a, b, None, options(params)),
        4 => CubeBackend::conv2d(a, b, None, options(params)),
        _ => CubeBackend::conv3d(a, b, None, options(params)),
    };
    Ok(x.like(out, shape, dtype))
}

pub(crate) fn conv_input_grad(grad: &T, weight: &T, input_shape: Shape, params: &ConvParams) -> Result<T> {
    let dtype = grad.dtype();
    if input_shape.numel() == 0 || grad.is_empty() || weight.is_empty() {
        return T::full(input_shape, Scalar::Int(0), dtype, grad.device());
    }
    ensure_room(&input_shape, dtype, grad.device())?;
    // If there are gaps between windows, Burn's transposed convolution leaves out products, since its loop ends before
    // it begins.
    let apart = (2..input_shape.rank()).any(|i| params.stride[i - 2] > weight.shape()[i] * params.dilation[i - 2]);
    if apart {
        return decompose::conv_input_grad::<BurnWgpu>(grad, weight, input_shape, params);
    }
    // Burn uses only the input's shape.
    let (x, w, g) = (room(grad, &input_shape, dtype), weight.operand(), grad.operand());
    let out = match input_shape.rank() {
        3 => CubeBackend::conv1d_x_backward(x, w, g, options(params)),
        4 => CubeBackend::conv2d_x_backward(x, w, g, options(params)),
        _ => CubeBackend::conv3d_x_backward(x, w, g, options(params)),
    };
    Ok(grad.like(out, input_shape, dtype))
}

pub(crate) fn conv_weight_grad(grad: &T, x: &T, weight_shape: Shape, params: &ConvParams) -> Result<T> {
    let dtype = grad.dtype();
    if weight_shape.numel() == 0 || grad.is_empty() || x.is_empty() {
        return T::full(weight_shape, Scalar::Int(0), dtype, grad.device());
    }
    ensure_room(&weight_shape, dtype, grad.device())?;
    let (w, x, g) = (room(grad, &weight_shape, dtype), x.operand(), grad.operand());
    let out = match weight_shape.rank() {
        3 => CubeBackend::conv1d_weight_backward(x, w, g, options(params)),
        4 => CubeBackend::conv2d_weight_backward(x, w, g, options(params)),
        _ => CubeBackend::conv3d_weight_backward(x, w, g, options(params)),
    };
    Ok(grad.like(out, weight_shape, dtype))
}

/// How windows move over three spatial axes; missing ones have extent 1.
#[derive(CubeType, CubeLaunch)]
struct Walk {
    input: Sequence<u32>,
    output: Sequence<u32>,
    kernel: Sequence<u32>,
    stride: Sequence<u32>,
    padding: Sequence<u32>,
    dilation: Sequence<u32>,
}

/// One parameter per spatial axis, with `fill` for the prepended ones.
fn three(values: &[usize], fill: u32) -> SequenceArg<u32> {
    let mut out = SequenceArg::new();
    for i in 0..3 {
        out.push(match (i + values.len()).checked_sub(3) {
            Some(axis) => u32::try_from(values[axis]).unwrap_or(u32::MAX),
            None => fill,
        });
    }
    out
}

fn walk(input: &Shape, output: &Shape, params: &PoolParams) -> WalkLaunch {
    let spatial = input.rank() - 2;
    WalkLaunch::new(
        three(&input[2..], 1),
        three(&output[2..], 1),
        three(&params.kernel[..spatial], 1),
        three(&params.stride[..spatial], 1),
        three(&params.padding[..spatial], 0),
        three(&params.dilation[..spatial], 1),
    )
}

/// Start along an axis of the window at a place of the result, counted from the border's edge.
#[cube]
fn begin(walk: &Walk, place: u32, #[comptime] axis: usize) -> u32 {
    let along = if axis == 2 {
        place % walk.output[2]
    } else if axis == 1 {
        place / walk.output[2] % walk.output[1]
    } else {
        place / (walk.output[2] * walk.output[1]) % walk.output[0]
    };
    along * walk.stride[axis]
}

/// Offset of the input plane in which a place of the result lies.
#[cube]
fn plane(walk: &Walk, place: u32) -> u32 {
    let plane = place / (walk.output[0] * walk.output[1] * walk.output[2]);
    plane * (walk.input[0] * walk.input[1] * walk.input[2])
}

/// Max pooling. Burn's own starts with −∞ as the maximum, loses NaN, and has no third spatial axis.
#[cube(launch, address_type = "dynamic")]
fn largest<N: Numeric>(
    x: &Tensor<N>,
    mut values: LinearViewMut<'_, N>,
    mut places: LinearViewMut<'_, i64>,
    walk: Walk,
    #[define(N)] _dtype: ElemType,
) {
    if !values.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    let at = ABSOLUTE_POS as u32;
    let start = plane(&walk, at);
    let (d0, h0, w0) = (
        begin(&walk, at, 0usize),
        begin(&walk, at, 1usize),
        begin(&walk, at, 2usize),
    );
    let mut best = N::from_int(0);
    let mut found = i64::from_int(-1);
    for kd in 0..walk.kernel[0] {
        for kh in 0..walk.kernel[1] {
            for kw in 0..walk.kernel[2] {
                // A position below 0 wraps, and is thus beyond the end.
                let d = d0 + kd * walk.dilation[0] - walk.padding[0];
                let h = h0 + kh * walk.dilation[1] - walk.padding[1];
                let w = w0 + kw * walk.dilation[2] - walk.padding[2];
                if d < walk.input[0] && h < walk.input[1] && w < walk.input[2] {
                    let place = (d * walk.input[1] + h) * walk.input[2] + w;
                    let value = x[(start + place) as usize];
                    let lost = f32::cast_from(value).is_nan() && !f32::cast_from(best).is_nan();
                    if found < 0i64 || value > best || lost {
                        best = value;
                        found = i64::cast_from(place);
                    }
                }
            }
        }
    }
    values.write(ABSOLUTE_POS, best);
    places.write(ABSOLUTE_POS, found);
}

/// Average pooling. Burn's own has no third spatial axis, and counts the border differently if a window extends past
/// the end.
#[cube(launch, address_type = "dynamic")]
fn average(x: &Tensor<f32>, mut out: LinearViewMut<'_, f32>, walk: Walk, #[comptime] count_border: bool) {
    if !out.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    let at = ABSOLUTE_POS as u32;
    let start = plane(&walk, at);
    let (d0, h0, w0) = (
        begin(&walk, at, 0usize),
        begin(&walk, at, 1usize),
        begin(&walk, at, 2usize),
    );
    let mut sum = 0.0f32;
    let mut count = 0u32;
    for kd in 0..walk.kernel[0] {
        for kh in 0..walk.kernel[1] {
            for kw in 0..walk.kernel[2] {
                let d = d0 + kd;
                let h = h0 + kh;
                let w = w0 + kw;
                let inside = d - walk.padding[0] < walk.input[0]
                    && h - walk.padding[1] < walk.input[1]
                    && w - walk.padding[2] < walk.input[2];
                let padded = d < walk.input[0] + 2u32 * walk.padding[0]
                    && h < walk.input[1] + 2u32 * walk.padding[1]
                    && w < walk.input[2] + 2u32 * walk.padding[2];
                if inside {
                    let row = (d - walk.padding[0]) * walk.input[1] + h - walk.padding[1];
                    sum += x[(start + row * walk.input[2] + w - walk.padding[2]) as usize];
                }
                if inside || (count_border && padded) {
                    count += 1u32;
                }
            }
        }
    }
    out.write(ABSOLUTE_POS, sum / f32::cast_from(count));
}

pub(crate) fn max_pool(x: &T, params: &PoolParams) -> Result<(T, T)> {
    let (dtype, shape) = (x.dtype(), params.output_shape(&x.shape())?);
    ensure_room(&shape, DType::I64, x.device())?;
    if shape.numel() == 0 {
        return Ok((x.zeros(shape, dtype)?, x.zeros(shape, DType::I64)?));
    }
    let input = x.contiguous().operand();
    let (values, places) = (room(x, &shape, dtype), room(x, &shape, DType::I64));
    let (count, dim) = units(&values.client, shape.numel());
    largest::launch(
        &values.client,
        count,
        dim,
        addresses!(input, values, places),
        input.into_tensor_arg(),
        values.clone().into_linear_view(),
        places.clone().into_linear_view(),
        walk(&x.shape(), &shape, params),
        burn_backend::cubecl::dtype_to_elem_type(values.dtype),
    );
    let places = x.like(places, shape, DType::I64);
    let spatial = shape.rank() - 2;
    let may_miss = (0..spatial).any(|axis| params.padding[axis] > 0 && params.dilation[axis] > 1);
    if may_miss && check("max_pool", &places, 2, usize::MAX).is_err() {
        let error = Error::invalid("a window lies wholly in the border").with_op("max_pool");
        return Err(error.with_hint("use less padding or dilation"));
    }
    Ok((x.like(values, shape, dtype), places))
}

pub(crate) fn avg_pool(x: &T, params: &PoolParams) -> Result<T> {
    let (dtype, shape) = (x.dtype(), params.output_shape(&x.shape())?);
    ensure_room(&shape, dtype, x.device())?;
    if shape.numel() == 0 {
        return x.zeros(shape, dtype);
    }
    let input = x.contiguous().operand();
    let out: CubeTensor = room(x, &shape, dtype);
    let (count, dim) = units(&out.client, shape.numel());
    average::launch(
        &out.client,
        count,
        dim,
        addresses!(input, out),
        input.into_tensor_arg(),
        out.clone().into_linear_view(),
        walk(&x.shape(), &shape, params),
        params.count_include_pad,
    );
    Ok(x.like(out, shape, dtype))
}
