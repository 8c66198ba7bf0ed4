//! Calls that the backend's own ops compute: operands become tensors over the driver's memory, and
//! results are copied out.

use polygrad_core::compute::{
    ArgReduce, Attention, Conv2d, CrossEntropy, CumSum, Gather, LayerNorm, Pool2d, Random, Reduce, ReduceAxes, Scatter,
    Softmax, Sort,
};
use polygrad_core::{Axes, Backend, DType, Error, Result, Scalar, Shape};

use super::claims::Claims;
use super::memory::Place;
use crate::fused::{cross_entropy, norm, softmax};
use crate::ops::{axis_in, create, floats, index, reduce, scan, sort};
use crate::{Cpu, CpuDevice, CpuTensor, conv};

/// See [`polygrad_core::compute::ComputeBackend::reduce`].
pub(super) fn reduce(memory: &Claims<'_>, call: &Reduce, device: CpuDevice) -> Result<()> {
    call.spans()?;
    let x = memory.tensor(call.input, call.dtype, &[call.outer, call.len, call.inner], device)?;
    let to = memory.output(call.output, call.dtype, &[call.outer, call.inner])?;
    memory.found();
    to.write(&reduce::reduce(call.op, &x, Axes::one(1), false)?)
}

/// See [`polygrad_core::compute::ComputeBackend::reduce_axes`].
pub(super) fn reduce_axes(memory: &Claims<'_>, call: &ReduceAxes, device: CpuDevice) -> Result<()> {
    let shape = call.input.shape();
    if let Some(axis) = call.axes.iter().find(|&axis| axis >= shape.rank()) {
        return Err(Error::out_of_range(format!("axis {axis} of shape {shape}")));
    }
    let x = memory.place(&call.input)?.tensor(device)?;
    let to = memory.output(call.output, call.input.dtype, &shape.reduced(call.axes, false))?;
    memory.found();
    to.write(&reduce::reduce(call.op, &x, call.axes, false)?)
}

/// See [`polygrad_core::compute::ComputeBackend::arg_reduce`].
pub(super) fn arg_reduce(memory: &Claims<'_>, call: &ArgReduce, device: CpuDevice) -> Result<()> {
    let x = memory.place(&call.input)?.tensor(device)?;
    axis_in(call.op.name(), &x, call.axis)?;
    let kept = call.input.shape().reduced(Axes::one(call.axis), false);
    let to = memory.output(call.output, DType::I64, &kept)?;
    memory.found();
    to.write(&scan::arg_reduce(call.op, &x, call.axis, false)?)
}

/// See [`polygrad_core::compute::ComputeBackend::cumsum`].
pub(super) fn cumsum(memory: &Claims<'_>, call: &CumSum, device: CpuDevice) -> Result<()> {
    let x = memory.place(&call.input)?.tensor(device)?;
    let to = memory.output(call.output, call.input.dtype, call.input.shape())?;
    memory.found();
    to.write(&scan::cumsum(&x, call.axis)?)
}

/// See [`polygrad_core::compute::ComputeBackend::sort`].
pub(super) fn sort(memory: &Claims<'_>, call: &Sort, device: CpuDevice) -> Result<()> {
    let x = memory.place(&call.input)?.tensor(device)?;
    let to = memory.output(call.values, call.input.dtype, call.input.shape())?;
    let to_positions = memory.output(call.positions, DType::I64, call.input.shape())?;
    memory.found();
    let (values, positions) = sort::sort(&x, call.axis, call.descending)?;
    to.write(&values)?;
    to_positions.write(&positions)
}

/// See [`polygrad_core::compute::ComputeBackend::softmax`].
pub(super) fn softmax(memory: &Claims<'_>, call: &Softmax, device: CpuDevice) -> Result<()> {
    let (x, to) = rows(memory, call, device)?;
    memory.found();
    if x.numel() == 0 {
        return Ok(());
    }
    to.write(&match call.log {
        false => softmax::softmax(&x, 1)?,
        true => softmax::log_softmax(&x, 1)?,
    })
}

/// See [`polygrad_core::compute::ComputeBackend::softmax_backward`].
pub(super) fn softmax_backward(memory: &Claims<'_>, call: &Softmax, device: CpuDevice) -> Result<()> {
    let (grad, to) = rows(memory, call, device)?;
    let output = memory.tensor(call.saved, call.dtype, &[call.rows, call.columns], device)?;
    memory.found();
    if grad.numel() == 0 {
        return Ok(());
    }
    to.write(&match call.log {
        false => softmax::softmax_backward(&grad, &output, 1)?,
        true => softmax::log_softmax_backward(&grad, &output, 1)?,
    })
}

fn rows(memory: &Claims<'_>, call: &Softmax, device: CpuDevice) -> Result<(CpuTensor, Place)> {
    floats("softmax", call.dtype)?;
    let dims = [call.rows, call.columns];
    Ok((
        memory.tensor(call.input, call.dtype, &dims, device)?,
        memory.output(call.output, call.dtype, &dims)?,
    ))
}

/// See [`polygrad_core::compute::ComputeBackend::layer_norm`].
pub(super) fn layer_norm(memory: &Claims<'_>, call: &LayerNorm, device: CpuDevice) -> Result<()> {
    let (dtype, dims) = (call.dtype, [call.rows, call.columns]);
    floats("layer_norm", dtype)?;
    if call.rows > 0 && call.columns == 0 {
        return Err(Error::invalid("the mean of rows of no elements"));
    }
    let x = memory.tensor(call.input, dtype, &dims, device)?;
    let parameter = |ptr| memory.tensor(ptr, dtype, &[call.columns], device);
    let (mut weight, bias) = (
        call.weight.map(parameter).transpose()?,
        call.bias.map(parameter).transpose()?,
    );
    if weight.is_none() && bias.is_some() {
        weight = Some(create::full(
            Shape::new(&[call.columns])?,
            Scalar::Float(1.0),
            dtype,
            device,
        )?);
    }
    let to = memory.output(call.output, dtype, &dims)?;
    let kept = [call.mean, call.rstd].map(|ptr| memory.output(ptr, dtype, &[call.rows]));
    let [to_mean, to_rstd] = kept;
    let (to_mean, to_rstd) = (to_mean?, to_rstd?);
    memory.found();
    if call.rows == 0 {
        return Ok(());
    }
    let (y, mean, rstd) = norm::layer_norm(&x, weight.as_ref(), bias.as_ref(), 1, call.eps)?;
    to.write(&y)?;
    to_mean.write(&mean)?;
    to_rstd.write(&rstd)
}

/// See [`polygrad_core::compute::ComputeBackend::cross_entropy`].
pub(super) fn cross_entropy(memory: &Claims<'_>, call: &CrossEntropy, device: CpuDevice) -> Result<()> {
    let (logits, target) = classified(memory, call, device)?;
    let to = [call.loss, call.logsumexp].map(|ptr| memory.output(ptr, call.dtype, &[call.rows]));
    let [to_loss, to_logsumexp] = to;
    let (to_loss, to_logsumexp) = (to_loss?, to_logsumexp?);
    memory.found();
    if call.rows == 0 {
        return Ok(());
    }
    let (loss, logsumexp) = cross_entropy::cross_entropy(&logits, &target, &call.params)?;
    to_loss.write(&loss)?;
    to_logsumexp.write(&logsumexp)
}

/// See [`polygrad_core::compute::ComputeBackend::cross_entropy_backward`].
pub(super) fn cross_entropy_backward(memory: &Claims<'_>, call: &CrossEntropy, device: CpuDevice) -> Result<()> {
    let (logits, target) = classified(memory, call, device)?;
    let grad = memory.tensor(call.loss, call.dtype, &[call.rows], device)?;
    let logsumexp = memory.tensor(call.logsumexp, call.dtype, &[call.rows], device)?;
    let to = memory.output(call.grad, call.dtype, &[call.rows, call.columns])?;
    memory.found();
    if logits.numel() == 0 {
        return Ok(());
    }
    to.write(&cross_entropy::cross_entropy_backward(
        &grad,
        &logits,
        &target,
        &logsumexp,
        &call.params,
    )?)
}

fn classified(memory: &Claims<'_>, call: &CrossEntropy, device: CpuDevice) -> Result<(CpuTensor, CpuTensor)> {
    floats("cross_entropy", call.dtype)?;
    Ok((
        memory.tensor(call.logits, call.dtype, &[call.rows, call.columns], device)?,
        memory.tensor(call.target, DType::I64, &[call.rows], device)?,
    ))
}

/// See [`polygrad_core::compute::ComputeBackend::attention`].
pub(super) fn attention(memory: &Claims<'_>, call: &Attention, device: CpuDevice) -> Result<()> {
    call.spans()?;
    floats("attention", call.dtype)?;
    let tensor = |ptr, rows, columns| memory.tensor(ptr, call.dtype, &[call.batch, call.heads, rows, columns], device);
    let q = tensor(call.q, call.seq_q, call.head_dim)?;
    let k = tensor(call.k, call.seq_kv, call.head_dim)?;
    let v = tensor(call.v, call.seq_kv, call.value_dim)?;
    let dims = [call.batch, call.heads, call.seq_q, call.value_dim];
    let to = memory.output(call.output, call.dtype, &dims)?;
    memory.found();
    if to.layout().shape().numel() == 0 {
        return Ok(());
    }
    to.write(&match call.seq_kv {
        0 => create::full(Shape::new(&dims)?, Scalar::Float(0.0), call.dtype, device)?,
        _ => Cpu::attention(&q, &k, &v, None, call.scale, call.causal)?,
    })
}

/// The tensors of a convolution as places: input, weight and output, of which one is written.
fn convolution(memory: &Claims<'_>, call: &Conv2d, written: usize) -> Result<[Place; 3]> {
    floats("conv2d", call.dtype)?;
    let output = call.output_shape()?;
    let find = |i: usize, ptr, dims: &[usize]| match i == written {
        true => memory.output(ptr, call.dtype, dims),
        false => memory.input(ptr, call.dtype, dims),
    };
    let places = [
        find(0, call.input, &call.input_shape)?,
        find(1, call.weight, &call.weight_shape)?,
        find(2, call.output, &output)?,
    ];
    memory.found();
    Ok(places)
}

/// See [`polygrad_core::compute::ComputeBackend::conv2d_forward`].
pub(super) fn conv2d(memory: &Claims<'_>, call: &Conv2d, device: CpuDevice) -> Result<()> {
    let [input, weight, output] = convolution(memory, call, 2)?;
    output.write(&conv::convolve(
        &input.raw(device),
        &weight.raw(device),
        &call.params,
        None,
    )?)
}

/// See [`polygrad_core::compute::ComputeBackend::conv2d_input_grad`].
pub(super) fn conv2d_input_grad(memory: &Claims<'_>, call: &Conv2d, device: CpuDevice) -> Result<()> {
    let [input, weight, output] = convolution(memory, call, 0)?;
    let shape = Shape::new(&call.input_shape)?;
    input.write(&conv::conv_input_grad(
        &output.raw(device),
        &weight.raw(device),
        shape,
        &call.params,
    )?)
}

/// See [`polygrad_core::compute::ComputeBackend::conv2d_weight_grad`].
pub(super) fn conv2d_weight_grad(memory: &Claims<'_>, call: &Conv2d, device: CpuDevice) -> Result<()> {
    let [input, weight, output] = convolution(memory, call, 1)?;
    let shape = Shape::new(&call.weight_shape)?;
    weight.write(&conv::conv_weight_grad(
        &output.raw(device),
        &input.raw(device),
        shape,
        &call.params,
    )?)
}

/// See [`polygrad_core::compute::ComputeBackend::max_pool2d`].
pub(super) fn max_pool2d(memory: &Claims<'_>, call: &Pool2d, device: CpuDevice) -> Result<()> {
    let shape = call.params.output_shape(&Shape::new(&call.input_shape)?)?;
    let x = memory.tensor(call.input, call.dtype, &call.input_shape, device)?;
    let to = memory.output(call.output, call.dtype, &shape)?;
    let to_positions = memory.output(call.positions, DType::I64, &shape)?;
    memory.found();
    let (values, positions) = conv::max_pool(&x, &call.params, true)?;
    to.write(&values)?;
    positions.map_or(Ok(()), |positions| to_positions.write(&positions))
}

/// See [`polygrad_core::compute::ComputeBackend::avg_pool2d`].
pub(super) fn avg_pool2d(memory: &Claims<'_>, call: &Pool2d, device: CpuDevice) -> Result<()> {
    let shape = call.params.output_shape(&Shape::new(&call.input_shape)?)?;
    let x = memory.tensor(call.input, call.dtype, &call.input_shape, device)?;
    let to = memory.output(call.output, call.dtype, &shape)?;
    memory.found();
    to.write(&conv::avg_pool(&x, &call.params)?)
}

/// See [`polygrad_core::compute::ComputeBackend::gather`].
pub(super) fn gather(memory: &Claims<'_>, call: &Gather, device: CpuDevice) -> Result<()> {
    let x = memory.place(&call.input)?.tensor(device)?;
    let names = memory.place(&call.index)?.tensor(device)?;
    let to = memory.output(call.output, call.input.dtype, call.index.shape())?;
    memory.found();
    to.write(&index::gather(&x, call.axis, &names)?)
}

/// See [`polygrad_core::compute::ComputeBackend::scatter`] and [`polygrad_core::compute::ComputeBackend::scatter_add`].
pub(super) fn scatter(memory: &Claims<'_>, call: &Scatter, add: bool, device: CpuDevice) -> Result<()> {
    if call.source.shape() != call.index.shape() {
        return Err(Error::shape(format!(
            "a source of shape {} for an index of shape {}",
            call.source.shape(),
            call.index.shape()
        )));
    }
    let target = memory.target(&call.target)?;
    let x = target.tensor(device)?;
    let names = memory.place(&call.index)?.tensor(device)?;
    let source = memory.place(&call.source)?.tensor(device)?;
    memory.found();
    target.write(&match add {
        false => index::scatter(&x, call.axis, &names, &source)?,
        true => index::scatter_add(&x, call.axis, &names, &source)?,
    })
}

/// See [`polygrad_core::compute::ComputeBackend::random`].
pub(super) fn random(memory: &Claims<'_>, call: &Random, device: CpuDevice) -> Result<()> {
    let to = memory.output(call.output, call.dtype, &[call.len])?;
    memory.found();
    to.write(&create::random(
        *to.layout().shape(),
        call.distribution,
        call.dtype,
        call.key,
        device,
    )?)
}
