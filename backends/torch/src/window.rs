//! Convolution and pooling.

use polygrad_core::{ConvParams, DType, Error, PoolParams, Result, Scalar, Shape, SliceRange, decompose};
use tch::Tensor;

use crate::Torch;
use crate::error::{Named, refused};
use crate::ffi::{self, Wanted};
use crate::movement::{pad, reshape, slice};
use crate::tensor::{TorchTensor, ints, kind};

/// The dtypes in which LibTorch's kernels for windows are precise enough; the others are computed in f32.
pub(crate) fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// Stride, padding and dilation, one number for each spatial axis.
fn steps(params: &ConvParams, n: usize) -> [Vec<i64>; 3] {
    [&params.stride, &params.padding, &params.dilation].map(|values| ints(&values[..n]))
}

fn widened(x: &TorchTensor) -> Result<TorchTensor> {
    x.wrap("to_dtype", x.raw().f_to_dtype(kind(DType::F32), false, false))
}

pub(crate) fn conv(x: &TorchTensor, weight: &TorchTensor, params: &ConvParams) -> Result<TorchTensor> {
    let shape = params.output_shape(x.shape(), weight.shape())?;
    if shape.numel() == 0 || weight.shape().numel() == 0 {
        return TorchTensor::full(shape, Scalar::Float(0.0), x.dtype(), x.device());
    }
    if !is_wide(x.dtype()) {
        let wide = conv(&widened(x)?, &widened(weight)?, params)?;
        return x.wrap("conv", wide.raw().f_to_dtype(kind(x.dtype()), false, false));
    }
    let n = shape.rank() - 2;
    let [stride, padding, dilation] = steps(params, n);
    let out = x.raw().f_convolution(
        weight.raw(),
        None::<&Tensor>,
        &stride[..],
        &padding[..],
        &dilation[..],
        false,
        &[0; 3][..n],
        params.groups as i64,
    );
    x.wrap("conv", out)
}

pub(crate) fn conv_input_grad(
    grad: &TorchTensor,
    weight: &TorchTensor,
    input_shape: Shape,
    params: &ConvParams,
) -> Result<TorchTensor> {
    if !is_wide(grad.dtype()) || grad.shape().numel() == 0 || weight.shape().numel() == 0 || input_shape.numel() == 0 {
        return decompose::conv_input_grad::<Torch>(grad, weight, input_shape, params);
    }
    // Only its shape is used.
    let input = TorchTensor::empty(&input_shape, grad.dtype(), grad.device())?;
    backward("conv_input_grad", grad, &input, weight, params, Wanted::Input)
}

pub(crate) fn conv_weight_grad(
    grad: &TorchTensor,
    x: &TorchTensor,
    weight_shape: Shape,
    params: &ConvParams,
) -> Result<TorchTensor> {
    if !is_wide(grad.dtype()) || grad.shape().numel() == 0 || weight_shape.numel() == 0 || x.shape().numel() == 0 {
        return decompose::conv_weight_grad::<Torch>(grad, x, weight_shape, params);
    }
    let weight = TorchTensor::empty(&weight_shape, grad.dtype(), grad.device())?;
    backward("conv_weight_grad", grad, x, &weight, params, Wanted::Weight)
}

fn backward(
    op: &'static str,
    grad: &TorchTensor,
    x: &TorchTensor,
    weight: &TorchTensor,
    params: &ConvParams,
    wanted: Wanted,
) -> Result<TorchTensor> {
    let [stride, padding, dilation] = steps(params, x.shape().rank() - 2);
    let steps = [&stride[..], &padding[..], &dilation[..]];
    let out = ffi::convolution_backward(op, grad.raw(), x.raw(), weight.raw(), steps, params.groups, wanted)?;
    TorchTensor::new(out, grad.device())
}

/// The arguments of pooling in the form of LibTorch's ops over two or three axes.
struct Pool {
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
}

impl Pool {
    fn new(params: &PoolParams, n: usize) -> Self {
        // One spatial axis becomes two, the first with a window of 1.
        let of = |values: &[usize; 3], fill: i64| {
            let mut out = ints(&values[..n]);
            if n == 1 {
                out.insert(0, fill);
            }
            out
        };
        Self {
            kernel: of(&params.kernel, 1),
            stride: of(&params.stride, 1),
            padding: of(&params.padding, 0),
            dilation: of(&params.dilation, 1),
        }
    }
}

/// `[N, C, L]` as `[N, C, 1, L]`; other ranks as they are.
fn with_plane(x: &TorchTensor) -> Result<TorchTensor> {
    match x.shape().dims() {
        &[n, c, l] => reshape(x, Shape::from([n, c, 1, l])),
        _ => Ok(x.clone()),
    }
}

/// Fails if a window contains no element of the input, for which LibTorch returns −∞ or NaN.
fn check_windows(op: &'static str, x: &Shape, out: &Shape, params: &PoolParams) -> Result<()> {
    for axis in 0..x.rank() - 2 {
        let (dim, border) = (x[axis + 2], params.padding[axis]);
        let sees = |position: usize| {
            let start = position * params.stride[axis];
            (0..params.kernel[axis]).any(|k| (border..border + dim).contains(&(start + k * params.dilation[axis])))
        };
        if !(0..out[axis + 2]).all(sees) {
            let error = Error::invalid("a window lies wholly in the border").with_op(op);
            return Err(error.with_hint("use less padding or dilation"));
        }
    }
    Ok(())
}

pub(crate) fn max_pool(x: &TorchTensor, params: &PoolParams) -> Result<(TorchTensor, TorchTensor)> {
    let op = "max_pool";
    if x.dtype() == DType::Bool {
        return Err(refused(op, x.dtype()));
    }
    let shape = params.output_shape(x.shape())?;
    if shape.numel() == 0 {
        let empty = |dtype| TorchTensor::empty(&shape, dtype, x.device());
        return Ok((empty(x.dtype())?, empty(DType::I64)?));
    }
    check_windows(op, x.shape(), &shape, params)?;
    let n = shape.rank() - 2;
    let (pool, plane) = (Pool::new(params, n), with_plane(x)?);
    let (t, kernel, stride) = (plane.raw(), &pool.kernel[..], &pool.stride[..]);
    let (padding, dilation, ceil) = (&pool.padding[..], &pool.dilation[..], params.ceil_mode);
    let (values, positions) = if n == 3 {
        t.f_max_pool3d_with_indices(kernel, stride, padding, dilation, ceil)
    } else {
        t.f_max_pool2d_with_indices(kernel, stride, padding, dilation, ceil)
    }
    .named(op)?;
    let [values, positions] = [values, positions].map(|out| TorchTensor::new(out, x.device()));
    Ok((reshape(&values?, shape)?, reshape(&positions?, shape)?))
}

/// The backward ops of max pooling require the windows; that of adaptive pooling computes the same sum by positions,
/// without them.
pub(crate) fn max_pool_backward(grad: &TorchTensor, indices: &TorchTensor, input_shape: Shape) -> Result<TorchTensor> {
    let op = "max_pool_backward";
    if !is_wide(grad.dtype()) || grad.shape().numel() == 0 || input_shape.numel() == 0 {
        return decompose::max_pool_backward::<Torch>(grad, indices, input_shape);
    }
    crate::index::check(op, indices, 2, input_shape[2..].iter().product())?;
    // Only its shape is used.
    let input = with_plane(&TorchTensor::empty(&input_shape, grad.dtype(), grad.device())?)?;
    let (grad, indices) = (with_plane(&grad.contiguous()?)?, with_plane(&indices.contiguous()?)?);
    let out = if input_shape.rank() == 5 {
        input.raw().f_adaptive_max_pool3d_backward(grad.raw(), indices.raw())
    } else {
        input.raw().f_adaptive_max_pool2d_backward(grad.raw(), indices.raw())
    };
    reshape(&grad.wrap(op, out)?, input_shape)
}

pub(crate) fn avg_pool(x: &TorchTensor, params: &PoolParams) -> Result<TorchTensor> {
    let op = "avg_pool";
    let shape = params.output_shape(x.shape())?;
    if shape.numel() == 0 {
        return TorchTensor::empty(&shape, x.dtype(), x.device());
    }
    if !is_wide(x.dtype()) {
        let wide = avg_pool(&widened(x)?, params)?;
        return x.wrap(op, wide.raw().f_to_dtype(kind(x.dtype()), false, false));
    }
    let n = shape.rank() - 2;
    if too_small(x.shape(), params) {
        return avg_pool_padded(x, shape, params);
    }
    let (pool, plane) = (Pool::new(params, n), with_plane(x)?);
    let (t, kernel, stride, padding) = (plane.raw(), &pool.kernel[..], &pool.stride[..], &pool.padding[..]);
    let (ceil, count) = (params.ceil_mode, params.count_include_pad);
    let out = if n == 3 {
        t.f_avg_pool3d(kernel, stride, padding, ceil, count, None)
    } else {
        t.f_avg_pool2d(kernel, stride, padding, ceil, count, None)
    };
    reshape(&x.wrap(op, out)?, shape)
}

/// Over three axes, LibTorch rejects windows that are larger than the input without its border.
fn too_small(x: &Shape, params: &PoolParams) -> bool {
    x.rank() == 5 && (0..3).any(|axis| x[axis + 2] < params.kernel[axis])
}

/// Average pooling of an input to which the border is added first.
fn avg_pool_padded(x: &TorchTensor, shape: Shape, params: &PoolParams) -> Result<TorchTensor> {
    let mut padding = [(0, 0); 5];
    for axis in 0..3 {
        padding[axis + 2] = (params.padding[axis], params.padding[axis]);
    }
    let inner = PoolParams {
        padding: [0; 3],
        count_include_pad: true,
        ..*params
    };
    // There may be an extra last window, which begins in the right border.
    let pooled = |x: &TorchTensor| {
        let out = avg_pool(&pad(x, &padding, Scalar::Float(0.0))?, &inner)?;
        let ranges: Vec<_> = shape.iter().map(|&dim| SliceRange::new(0, dim, 1)).collect();
        slice(&out, &ranges)
    };
    let mean = pooled(x)?;
    if params.count_include_pad {
        return Ok(mean);
    }
    // The share of each window that is not border.
    let ones = TorchTensor::full(*x.shape(), Scalar::Float(1.0), x.dtype(), x.device())?;
    let share = pooled(&ones)?;
    x.wrap("avg_pool", mean.raw().f_div(share.raw()))
}

pub(crate) fn avg_pool_backward(grad: &TorchTensor, input_shape: Shape, params: &PoolParams) -> Result<TorchTensor> {
    let op = "avg_pool_backward";
    if too_small(&input_shape, params)
        || !is_wide(grad.dtype())
        || grad.shape().numel() == 0
        || input_shape.numel() == 0
    {
        return decompose::avg_pool_backward::<Torch>(grad, input_shape, params);
    }
    let n = input_shape.rank() - 2;
    let input = with_plane(&TorchTensor::empty(&input_shape, grad.dtype(), grad.device())?)?;
    let (pool, plane) = (Pool::new(params, n), with_plane(grad)?);
    let (t, g, kernel, stride) = (input.raw(), plane.raw(), &pool.kernel[..], &pool.stride[..]);
    let (padding, ceil, count) = (&pool.padding[..], params.ceil_mode, params.count_include_pad);
    let out = if n == 3 {
        t.f_avg_pool3d_backward(g, kernel, stride, padding, ceil, count, None)
    } else {
        t.f_avg_pool2d_backward(g, kernel, stride, padding, ceil, count, None)
    };
    reshape(&grad.wrap(op, out)?, input_shape)
}
