//! Convolution and pooling.

use polygrad_core::{Axes, BinaryOp, ConvParams, DType, PoolParams, Result, Shape};

use super::elementwise::binary;
use crate::export::OnnxTensor;
use crate::export::call::Call;

type T = OnnxTensor;

/// The attributes common to all windows.
fn walk(call: Call, spatial: usize, stride: &[usize; 3], padding: &[usize; 3]) -> Call {
    let padding = &padding[..spatial];
    call.ints("strides", stride[..spatial].iter().copied())
        .ints("pads", padding.iter().chain(padding).copied())
}

fn convolution(op: &'static str, operands: [&T; 2], params: &ConvParams) -> Call {
    let spatial = operands[0].shape.rank() - 2;
    let call = walk(Call::of(op, operands), spatial, &params.stride, &params.padding);
    call.ints("dilations", params.dilation[..spatial].iter().copied())
        .ints("kernel_shape", operands[1].shape[2..].iter().copied())
        .int("group", params.groups as i64)
}

pub(crate) fn conv(x: &T, weight: &T, params: &ConvParams) -> Result<T> {
    let shape = params.output_shape(&x.shape, &weight.shape)?;
    let call = convolution("Conv", [x, weight], params).walks(x);
    x.recording.one(call.gives(shape, x.dtype))
}

/// The gradient of a convolution by its input is a transposed convolution.
pub(crate) fn conv_input_grad(grad: &T, weight: &T, shape: Shape, params: &ConvParams) -> Result<T> {
    let spatial = grad.shape.rank() - 2;
    let missing = (0..spatial).map(|axis| {
        let steps = (grad.shape[axis + 2].saturating_sub(1)) * params.stride[axis];
        let whole = steps + (weight.shape[axis + 2] - 1) * params.dilation[axis] + 1;
        (shape[axis + 2] + 2 * params.padding[axis]).saturating_sub(whole)
    });
    let missing: Vec<usize> = missing.collect();
    let call = convolution("ConvTranspose", [grad, weight], params).ints("output_padding", missing);
    grad.recording.one(call.walks(grad).gives(shape, grad.dtype))
}

fn pool(op: &'static str, x: &T, params: &PoolParams) -> Call {
    let spatial = x.shape.rank() - 2;
    walk(Call::of(op, [x]), spatial, &params.stride, &params.padding)
        .ints("kernel_shape", params.kernel[..spatial].iter().copied())
        .int("ceil_mode", i64::from(params.ceil_mode))
        .walks(x)
}

pub(crate) fn max_pool(x: &T, params: &PoolParams) -> Result<(T, T)> {
    let shape = params.output_shape(&x.shape)?;
    let spatial = x.shape.rank() - 2;
    let call = pool("MaxPool", x, params).ints("dilations", params.dilation[..spatial].iter().copied());
    let both = x.recording.emit(call.gives(shape, x.dtype).gives(shape, DType::I64))?;
    // ONNX counts positions over the whole tensor, Polygrad over one plane.
    let extents = x.extents();
    let mut plane = extents[2].clone();
    for extent in &extents[3..] {
        plane = plane.times(extent);
    }
    let plane = x.recording.state().extent(&plane)?;
    let place = binary(BinaryOp::Remainder, &both[1], &x.recording.tensor(plane))?;
    Ok((both[0].clone(), place))
}

pub(crate) fn avg_pool(x: &T, params: &PoolParams) -> Result<T> {
    let shape = params.output_shape(&x.shape)?;
    let spatial = x.shape.rank() - 2;
    let whole = (0..spatial).all(|axis| params.kernel[axis] == x.shape[axis + 2] && params.padding[axis] == 0);
    if whole {
        let call = Call::of("GlobalAveragePool", [x]);
        return x
            .recording
            .one(call.gives(x.shape.reduced(Axes::new(2..x.shape.rank())?, true), x.dtype));
    }
    let call = pool("AveragePool", x, params).int("count_include_pad", i64::from(params.count_include_pad));
    x.recording.one(call.gives(shape, x.dtype))
}
