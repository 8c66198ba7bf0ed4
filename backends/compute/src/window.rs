//! Convolutions and pooling.

use polygrad_core::compute::{Conv2d, Kernel, Pool2d};
use polygrad_core::{
    Axes, Backend, ConvParams, DType, ErrorKind, Layout, PoolParams, Result, Scalar, Shape, SliceRange,
};
use polygrad_reference::Reference;

use crate::array::Array;
use crate::elementwise::full;
use crate::host::{on_host, one_on_host};
use crate::matmul::matmul;
use crate::movement::{concat, contiguous, pad, permute, reshape};

pub(crate) fn conv(x: &Array, weight: &Array, params: &ConvParams) -> Result<Array> {
    let shape = params.output_shape(x.shape(), weight.shape())?;
    if shape.numel() == 0 || weight.shape().numel() == 0 || x.shape().numel() == 0 {
        return full(x.context(), shape, Scalar::Int(0), x.dtype());
    }
    if let Some((shapes, params)) = flat([*x.shape(), *weight.shape(), shape], params) {
        let (x, weight) = (contiguous(x)?, contiguous(weight)?);
        let out = Array::empty(x.context(), shape, x.dtype())?;
        let call = conv2d(&x, shapes, params, [&x, &weight, &out])?;
        match x.context().launch("conv", |driver| driver.conv2d_forward(&call)) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            other => return other.map(|()| out),
        }
    }
    by_product(x, weight, params, shape)
}

/// Gradient wrt the input; `None` if the driver has no kernel for it.
pub(crate) fn conv_input_grad(
    grad: &Array,
    weight: &Array,
    input_shape: Shape,
    params: &ConvParams,
) -> Result<Option<Array>> {
    if !grad.context().driver.supports(Kernel::Conv2dInputGrad, grad.dtype()) {
        return Ok(None);
    }
    let some = [grad.shape(), weight.shape(), &input_shape]
        .iter()
        .all(|shape| shape.numel() > 0);
    let Some((shapes, params)) = flat([input_shape, *weight.shape(), *grad.shape()], params).filter(|_| some) else {
        return Ok(None);
    };
    let (grad, weight) = (contiguous(grad)?, contiguous(weight)?);
    let out = Array::empty(grad.context(), input_shape, grad.dtype())?;
    let call = conv2d(&grad, shapes, params, [&out, &weight, &grad])?;
    grad.context()
        .launch("conv_input_grad", |driver| driver.conv2d_input_grad(&call))?;
    Ok(Some(out))
}

/// Gradient wrt the weight; `None` if the driver has no kernel for it.
pub(crate) fn conv_weight_grad(
    grad: &Array,
    x: &Array,
    weight_shape: Shape,
    params: &ConvParams,
) -> Result<Option<Array>> {
    if !grad.context().driver.supports(Kernel::Conv2dWeightGrad, grad.dtype()) {
        return Ok(None);
    }
    let some = [grad.shape(), x.shape(), &weight_shape]
        .iter()
        .all(|shape| shape.numel() > 0);
    let Some((shapes, params)) = flat([*x.shape(), weight_shape, *grad.shape()], params).filter(|_| some) else {
        return Ok(None);
    };
    let (grad, x) = (contiguous(grad)?, contiguous(x)?);
    let out = Array::empty(grad.context(), weight_shape, grad.dtype())?;
    let call = conv2d(&grad, shapes, params, [&x, &out, &grad])?;
    grad.context()
        .launch("conv_weight_grad", |driver| driver.conv2d_weight_grad(&call))?;
    Ok(Some(out))
}

/// Input, weight and output over two axes: a single axis becomes two, the first of extent 1.
fn flat(shapes: [Shape; 3], params: &ConvParams) -> Option<([[usize; 4]; 3], ConvParams)> {
    match shapes[0].rank() {
        4 => Some((shapes.map(|shape| [shape[0], shape[1], shape[2], shape[3]]), *params)),
        3 => {
            let params = ConvParams {
                stride: [1, params.stride[0], 1],
                padding: [0, params.padding[0], 0],
                dilation: [1, params.dilation[0], 1],
                groups: params.groups,
            };
            Some((shapes.map(|shape| [shape[0], shape[1], 1, shape[2]]), params))
        }
        _ => None,
    }
}

fn conv2d(of: &Array, shapes: [[usize; 4]; 3], params: ConvParams, arrays: [&Array; 3]) -> Result<Conv2d> {
    Ok(Conv2d {
        dtype: of.dtype(),
        input_shape: shapes[0],
        weight_shape: shapes[1],
        params,
        input: arrays[0].start()?,
        weight: arrays[1].start()?,
        output: arrays[2].start()?,
    })
}

/// Convolution as a product of all windows, as rows of a matrix, and the filters: for cases without a kernel.
fn by_product(x: &Array, weight: &Array, params: &ConvParams, shape: Shape) -> Result<Array> {
    let (rank, batch) = (x.shape().rank(), x.shape()[0]);
    let spatial = rank - 2;
    let mut border = vec![(0, 0); 2];
    border.extend((0..spatial).map(|axis| (params.padding[axis], params.padding[axis])));
    let padded = contiguous(&pad(x, &border, Scalar::Int(0))?)?;
    let strides = padded.layout.strides();
    let (channels, filters) = (weight.shape()[1], weight.shape()[0] / params.groups);
    let taps: usize = weight.shape()[1..].iter().product();
    let positions: usize = shape[2..].iter().product();
    let mut parts = Vec::with_capacity(params.groups);
    for group in 0..params.groups {
        // [N, position…, C / groups, kernel…], with windows that overlap in memory.
        let (mut dims, mut steps) = (vec![batch], vec![strides[0]]);
        for axis in 0..spatial {
            dims.push(shape[axis + 2]);
            steps.push(strides[axis + 2] * params.stride[axis] as isize);
        }
        dims.push(channels);
        steps.push(strides[1]);
        for axis in 0..spatial {
            dims.push(weight.shape()[axis + 2]);
            steps.push(strides[axis + 2] * params.dilation[axis] as isize);
        }
        let start = padded.layout.offset() + group * channels * strides[1] as usize;
        let windows = padded.with_layout(Layout::strided(Shape::new(&dims)?, &steps, start));
        let columns = reshape(&contiguous(&windows)?, Shape::from([batch * positions, taps]))?;
        let mut range: Vec<_> = weight.shape().dims().iter().map(|&dim| SliceRange::full(dim)).collect();
        range[0] = SliceRange::new(group * filters, filters, 1);
        let own = reshape(&crate::movement::slice(weight, &range), Shape::from([filters, taps]))?;
        let product = matmul(&columns, &permute(&own, Axes::new([1, 0])?))?;
        let mut dims = vec![batch];
        dims.extend(&shape[2..]);
        dims.push(filters);
        let product = reshape(&product, Shape::new(&dims)?)?;
        parts.push(permute(
            &product,
            Axes::new([0, rank - 1].into_iter().chain(1..rank - 1))?,
        ));
    }
    match &parts[..] {
        [one] => Ok(one.clone()),
        many => concat(&many.iter().collect::<Vec<_>>(), 1),
    }
}

/// Pooling over two axes, or over one as two.
fn pool2d(x: &Array, params: &PoolParams, kernel: Kernel) -> Option<([usize; 4], PoolParams)> {
    let dims = x.shape().dims();
    let fits = x.context().driver.supports(kernel, x.dtype()) && x.shape().numel() > 0;
    let one_first = |of: [usize; 3], first: usize| [first, of[0], 1];
    match *dims {
        [n, c, h, w] if fits => Some(([n, c, h, w], *params)),
        [n, c, l] if fits => Some((
            [n, c, 1, l],
            PoolParams {
                kernel: one_first(params.kernel, 1),
                stride: one_first(params.stride, 1),
                padding: one_first(params.padding, 0),
                dilation: one_first(params.dilation, 1),
                ..*params
            },
        )),
        _ => None,
    }
}

pub(crate) fn max_pool(x: &Array, params: &PoolParams) -> Result<(Array, Array)> {
    let Some((input_shape, flat)) = pool2d(x, params, Kernel::MaxPool2d) else {
        let [values, positions] = on_host(x.context(), &[x], |x| match Reference::max_pool(&x[0], params, true)? {
            (values, Some(positions)) => Ok([values, positions]),
            _ => unreachable!("positions were asked for"),
        })?;
        return Ok((values, positions));
    };
    let (x, shape) = (contiguous(x)?, params.output_shape(x.shape())?);
    let values = Array::empty(x.context(), shape, x.dtype())?;
    let positions = Array::empty(x.context(), shape, DType::I64)?;
    let call = Pool2d {
        dtype: x.dtype(),
        input_shape,
        params: flat,
        input: x.start()?,
        output: values.start()?,
        positions: positions.start()?,
    };
    x.context().launch("max_pool", |driver| driver.max_pool2d(&call))?;
    Ok((values, positions))
}

pub(crate) fn avg_pool(x: &Array, params: &PoolParams) -> Result<Array> {
    let Some((input_shape, flat)) = pool2d(x, params, Kernel::AvgPool2d) else {
        return one_on_host(x.context(), &[x], |x| Reference::avg_pool(&x[0], params));
    };
    let (x, shape) = (contiguous(x)?, params.output_shape(x.shape())?);
    let out = Array::empty(x.context(), shape, x.dtype())?;
    let call = Pool2d {
        dtype: x.dtype(),
        input_shape,
        params: flat,
        input: x.start()?,
        output: out.start()?,
        positions: Default::default(),
    };
    x.context().launch("avg_pool", |driver| driver.avg_pool2d(&call))?;
    Ok(out)
}
