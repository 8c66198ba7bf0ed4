//! Convolution and pooling. Burn's kernels have three spatial axes; fewer are extended by axes of extent 1, as in Burn
//! itself.

use burn_backend::ops::{ConvOptions, ConvTransposeOptions, ModuleOps};
use burn_flex::ops::pool;
use burn_flex::{Flex, FlexTensor};
use polygrad_core::{Axes, ConvParams, DType, Error, Layout, PoolParams, ReduceOp, Result, Scalar, Shape, decompose};

use crate::Burn;
use crate::flex::compare::cast;
use crate::flex::movement::{expand, pad, permute, reshape};
use crate::flex::product::matmul;
use crate::flex::reduce::reduce;
use crate::flex::tensor::{BurnTensor, ensure_room};
use crate::flex::{index, integer};

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// `[N, C, spatial…]` with three spatial axes; missing ones are prepended.
fn lifted(shape: &Shape) -> Shape {
    let mut out = Shape::from([shape[0], shape[1], 1, 1, 1]);
    let spatial = shape.rank() - 2;
    out.dims_mut()[5 - spatial..].copy_from_slice(&shape[2..]);
    out
}

fn lift(x: &BurnTensor) -> Result<FlexTensor> {
    Ok(reshape(x, lifted(&x.shape()))?.into())
}

/// One parameter per spatial axis, with `fill` for the prepended ones.
fn three(values: &[usize; 3], spatial: usize, fill: usize) -> [usize; 3] {
    let mut out = [fill; 3];
    out[3 - spatial..].copy_from_slice(&values[..spatial]);
    out
}

pub(crate) fn conv(x: &BurnTensor, weight: &BurnTensor, params: &ConvParams) -> Result<BurnTensor> {
    let shape = params.output_shape(&x.shape(), &weight.shape())?;
    let dtype = x.dtype();
    if shape.numel() == 0 || weight.shape().numel() == 0 {
        return BurnTensor::full(shape, Scalar::Int(0), dtype);
    }
    if is_narrow(dtype) {
        return cast(&conv(&cast(x, DType::F32)?, &cast(weight, DType::F32)?, params)?, dtype);
    }
    ensure_room(&shape, dtype)?;
    let spatial = shape.rank() - 2;
    let options = ConvOptions::new(
        three(&params.stride, spatial, 1),
        three(&params.padding, spatial, 0),
        three(&params.dilation, spatial, 1),
        params.groups,
    );
    let out = Flex::conv3d(lift(&x.contiguous()?)?, lift(&weight.contiguous()?)?, None, options);
    reshape(&BurnTensor::new(out), shape)
}

/// Burn's transposed convolution.
pub(crate) fn conv_input_grad(
    grad: &BurnTensor,
    weight: &BurnTensor,
    input_shape: Shape,
    params: &ConvParams,
) -> Result<BurnTensor> {
    let (dtype, out, kernel) = (grad.dtype(), grad.shape(), weight.shape());
    if input_shape.numel() == 0 || out.numel() == 0 || kernel.numel() == 0 {
        return BurnTensor::full(input_shape, Scalar::Int(0), dtype);
    }
    if is_narrow(dtype) {
        let wide = conv_input_grad(
            &cast(grad, DType::F32)?,
            &cast(weight, DType::F32)?,
            input_shape,
            params,
        )?;
        return cast(&wide, dtype);
    }
    ensure_room(&input_shape, dtype)?;
    let spatial = out.rank() - 2;
    // The elements at the end of the input that no window reaches.
    let mut margin = [0; 3];
    for axis in 0..spatial {
        let span = (kernel[axis + 2] - 1) * params.dilation[axis] + 1;
        let reached = (out[axis + 2] - 1) * params.stride[axis] + span;
        margin[axis] = input_shape[axis + 2] + 2 * params.padding[axis] - reached;
    }
    let options = ConvTransposeOptions::new(
        three(&params.stride, spatial, 1),
        three(&params.padding, spatial, 0),
        three(&margin, spatial, 0),
        three(&params.dilation, spatial, 1),
        params.groups,
    );
    let out = Flex::conv_transpose3d(lift(&grad.contiguous()?)?, lift(&weight.contiguous()?)?, None, options);
    reshape(&BurnTensor::new(out), input_shape)
}

/// The product of the output's gradient and the windows' patches for each image, summed over the images.
pub(crate) fn conv_weight_grad(
    grad: &BurnTensor,
    x: &BurnTensor,
    weight_shape: Shape,
    params: &ConvParams,
) -> Result<BurnTensor> {
    let (dtype, out) = (grad.dtype(), grad.shape());
    if out.numel() == 0 || weight_shape.numel() == 0 || x.shape().numel() == 0 {
        return BurnTensor::full(weight_shape, Scalar::Int(0), dtype);
    }
    if is_narrow(dtype) {
        let wide = conv_weight_grad(&cast(grad, DType::F32)?, &cast(x, DType::F32)?, weight_shape, params)?;
        return cast(&wide, dtype);
    }
    let groups = params.groups;
    let (images, filters) = (out[0], out[1] / groups);
    let (terms, places) = (weight_shape[1..].iter().product(), out[2..].iter().product());
    let patches = reshape(
        &windows(x, &out, &weight_shape, params)?,
        Shape::new(&[images, groups, terms, places])?,
    )?;
    let grad = reshape(grad, Shape::from([images, groups, filters, places]))?;
    let patches = permute(&patches, Axes::new([0, 1, 3, 2])?);
    let products = matmul(&grad, &patches)?;
    reshape(&reduce(ReduceOp::Sum, &products, Axes::one(0), false)?, weight_shape)
}

/// A view of the padded input, `[N, C, kernel…, places…]`. Its elements overlap; nothing is copied yet.
fn windows(x: &BurnTensor, out: &Shape, kernel: &Shape, params: &ConvParams) -> Result<BurnTensor> {
    let spatial = out.rank() - 2;
    let mut border = vec![(0, 0); 2];
    border.extend(params.padding[..spatial].iter().map(|&padding| (padding, padding)));
    let x = if params.padding[..spatial].iter().all(|&padding| padding == 0) {
        x.clone()
    } else {
        pad(x, &border, Scalar::Int(0))?
    };
    let layout = x.layout();
    let (shape, strides) = (layout.shape(), layout.strides());
    let mut dims = vec![shape[0], shape[1]];
    let mut steps = vec![strides[0], strides[1]];
    dims.extend(&kernel[2..]);
    steps.extend((0..spatial).map(|axis| strides[axis + 2] * params.dilation[axis] as isize));
    dims.extend(&out[2..]);
    steps.extend((0..spatial).map(|axis| strides[axis + 2] * params.stride[axis] as isize));
    let dims = Shape::new(&dims)?;
    ensure_room(&dims, x.dtype())?;
    Ok(x.view(&Layout::strided(dims, &steps, layout.offset())))
}

fn sees_nothing(op: &'static str) -> Error {
    let error = Error::invalid("a window lies wholly in the border").with_op(op);
    error.with_hint("use less padding or dilation")
}

pub(crate) fn max_pool(x: &BurnTensor, params: &PoolParams) -> Result<(BurnTensor, BurnTensor)> {
    let (dtype, shape) = (x.dtype(), params.output_shape(&x.shape())?);
    ensure_room(&shape, DType::I64)?;
    let x = x.contiguous()?;
    if shape.numel() == 0 {
        let none = |dtype| BurnTensor::full(shape, Scalar::Int(0), dtype);
        return Ok((none(dtype)?, none(DType::I64)?));
    }
    let spatial = shape.rank() - 2;
    let (kernel, stride) = (three(&params.kernel, spatial, 1), three(&params.stride, spatial, 1));
    let (padding, dilation) = (three(&params.padding, spatial, 0), three(&params.dilation, spatial, 1));
    let pool = match dtype {
        DType::F32 => pool::max_pool3d_with_indices_f32,
        DType::F64 => pool::max_pool3d_with_indices_f64,
        DType::F16 => pool::max_pool3d_with_indices_f16,
        DType::BF16 => pool::max_pool3d_with_indices_bf16,
        _ => {
            let walk = integer::Walk {
                kernel,
                stride,
                padding,
                dilation,
            };
            return match integer::max_pool(&x, &lifted(&x.shape()), &lifted(&shape), &walk)? {
                Some((values, places)) => Ok((reshape(&values, shape)?, reshape(&places, shape)?)),
                None => Err(sees_nothing("max_pool")),
            };
        }
    };
    let (values, places) = pool(lift(&x)?, kernel, stride, padding, dilation, params.ceil_mode);
    let places = BurnTensor::new(places);
    let may_miss = padding
        .iter()
        .zip(dilation)
        .any(|(&padding, dilation)| padding > 0 && dilation > 1);
    if may_miss
        && places
            .values::<i64>()
            .is_none_or(|places| places.iter().any(|&place| place < 0))
    {
        return Err(sees_nothing("max_pool"));
    }
    Ok((reshape(&BurnTensor::new(values), shape)?, reshape(&places, shape)?))
}

pub(crate) fn avg_pool(x: &BurnTensor, params: &PoolParams) -> Result<BurnTensor> {
    let (dtype, shape) = (x.dtype(), params.output_shape(&x.shape())?);
    if is_narrow(dtype) {
        return cast(&avg_pool(&cast(x, DType::F32)?, params)?, dtype);
    }
    if shape.numel() == 0 {
        return BurnTensor::full(shape, Scalar::Int(0), dtype);
    }
    ensure_room(&shape, dtype)?;
    let spatial = shape.rank() - 2;
    let pool = if dtype == DType::F32 {
        pool::avg_pool3d_f32
    } else {
        pool::avg_pool3d_f64
    };
    let out = pool(
        lift(&x.contiguous()?)?,
        three(&params.kernel, spatial, 1),
        three(&params.stride, spatial, 1),
        three(&params.padding, spatial, 0),
        params.count_include_pad,
        params.ceil_mode,
    );
    reshape(&BurnTensor::new(out), shape)
}

/// A tensor of a shape, for a gradient's input of which Burn uses only the shape.
fn like(shape: &Shape, dtype: DType) -> Result<FlexTensor> {
    Ok(expand(&BurnTensor::full(Shape::SCALAR, Scalar::Int(0), dtype)?, lifted(shape)).into())
}

pub(crate) fn max_pool_backward(grad: &BurnTensor, places: &BurnTensor, input_shape: Shape) -> Result<BurnTensor> {
    let dtype = grad.dtype();
    if is_narrow(dtype) {
        return cast(
            &max_pool_backward(&cast(grad, DType::F32)?, places, input_shape)?,
            dtype,
        );
    }
    if !matches!(dtype, DType::F32 | DType::F64) || grad.shape().numel() == 0 {
        return decompose::max_pool_backward::<Burn>(grad, places, input_shape);
    }
    ensure_room(&input_shape, dtype)?;
    let plane = input_shape[2..].iter().product();
    let places = lift(&index::checked("max_pool_backward", places, 2, plane)?)?;
    let (x, grad) = (like(&input_shape, dtype)?, lift(&grad.contiguous()?)?);
    let out = match dtype {
        DType::F32 => pool::max_pool3d_backward_f32(x, grad, places),
        _ => pool::max_pool3d_backward_f64(x, grad, places),
    };
    reshape(&BurnTensor::new(out), input_shape)
}

pub(crate) fn avg_pool_backward(grad: &BurnTensor, input_shape: Shape, params: &PoolParams) -> Result<BurnTensor> {
    let dtype = grad.dtype();
    // Burn's kernel does not support windows that extend past the end.
    if params.ceil_mode || !matches!(dtype, DType::F32 | DType::F64) || grad.shape().numel() == 0 {
        return decompose::avg_pool_backward::<Burn>(grad, input_shape, params);
    }
    ensure_room(&input_shape, dtype)?;
    let spatial = input_shape.rank() - 2;
    let backward = if dtype == DType::F32 {
        pool::avg_pool3d_backward_f32
    } else {
        pool::avg_pool3d_backward_f64
    };
    let out = backward(
        like(&input_shape, dtype)?,
        lift(&grad.contiguous()?)?,
        three(&params.kernel, spatial, 1),
        three(&params.stride, spatial, 1),
        three(&params.padding, spatial, 0),
        params.count_include_pad,
    );
    reshape(&BurnTensor::new(out), input_shape)
}
