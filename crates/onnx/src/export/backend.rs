//! The backend of the recorder: each op is recorded, or computed at once if all its inputs are known.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, Composite, ConvParams,
    CrossEntropyParams, DType, Distribution, Error, HostTensor, OpDesc, PoolParams, RandomKey, ReduceOp, Result,
    Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose, random_host,
};
use polygrad_reference::Reference;

use super::fold::or_record;
use super::ops::support::training;
use super::ops::{
    attention, create, elementwise, index, linear, movement, norm, quantized, recurrent, reduce, resample, support,
    window,
};
use super::{Onnx, OnnxTensor, Recording};

type T = OnnxTensor;

impl Backend for Onnx {
    type Tensor = OnnxTensor;
    type Device = Recording;

    fn name() -> &'static str {
        "onnx"
    }

    fn capabilities(_: &Recording) -> Capabilities {
        Capabilities::host(DType::ALL)
    }

    fn supports(device: &Recording, op: &OpDesc<'_>) -> Result<()> {
        support::supports(device.state().opset, op)
    }

    fn synchronize(_: &Recording) -> Result<()> {
        Ok(())
    }

    fn shape(x: &T) -> Shape {
        x.shape
    }

    fn dtype(x: &T) -> DType {
        x.dtype
    }

    fn device(x: &T) -> Recording {
        x.recording.clone()
    }

    fn from_host(host: HostTensor, device: &Recording) -> Result<T> {
        create::from_host(host, device)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        create::to_host(x)
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &Recording) -> Result<T> {
        create::full(shape, value, dtype, device)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &Recording) -> Result<T> {
        create::iota(len, start, step, dtype, device)
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey, device: &Recording) -> Result<T> {
        if device.state().loading {
            return Self::from_host(random_host(shape, distribution, dtype, key)?, device);
        }
        Err(
            Error::unsupported("random numbers cannot be recorded: a file gives the same answer each time")
                .with_op("random")
                .with_hint("make them outside the model, and give them to it as an input"),
        )
    }

    fn composite(op: &Composite<'_>, x: &T) -> Result<Option<T>> {
        resample::composite(op, x)
    }

    fn unary(op: UnaryOp, x: &T) -> Result<T> {
        let compute = |c: &[_]| Reference::unary(op, &c[0]);
        or_record(&[x], x.shape, compute, || elementwise::unary(op, x))
    }

    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        let compute = |c: &[_]| Reference::binary(op, &c[0], &c[1]);
        or_record(&[a, b], a.shape.broadcast(&b.shape)?, compute, || {
            elementwise::binary(op, a, b)
        })
    }

    fn compare(op: CompareOp, a: &T, b: &T) -> Result<T> {
        let compute = |c: &[_]| Reference::compare(op, &c[0], &c[1]);
        or_record(&[a, b], a.shape.broadcast(&b.shape)?, compute, || {
            elementwise::compare(op, a, b)
        })
    }

    fn select(condition: &T, a: &T, b: &T) -> Result<T> {
        let compute = |c: &[_]| Reference::select(&c[0], &c[1], &c[2]);
        let shape = elementwise::select_shape(condition, a, b)?;
        or_record(&[condition, a, b], shape, compute, || {
            elementwise::select(condition, a, b)
        })
    }

    fn cast(x: &T, dtype: DType) -> Result<T> {
        let compute = |c: &[_]| Reference::cast(&c[0], dtype);
        or_record(&[x], x.shape, compute, || elementwise::cast(x, dtype))
    }

    fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
        let compute = |c: &[_]| Reference::reduce(op, &c[0], axes, keepdims);
        let shape = x.shape.reduced(axes, keepdims);
        or_record(&[x], shape, compute, || reduce::reduce(op, x, axes, keepdims))
    }

    polygrad_core::backend_methods! {
        arg_reduce => reduce::arg_reduce,
        matmul => linear::matmul,
        scatter(x, axis, index, src) => index::scatter(x, axis, index, src, false),
        scatter_add(x, axis, index, src) => index::scatter(x, axis, index, src, true),
        sort => reduce::sort,
        conv(x, weight, bias, residual, activation, params) =>
            decompose::epilogue::<Self>(window::conv(x, weight, params)?, bias, residual, activation),
        max_pool(x, params, positions) => window::max_pool(x, params).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool => window::avg_pool,
        linear(x, weight, bias, activation) =>
            decompose::epilogue::<Self>(linear::linear(x, weight, bias)?, None, None, activation),
        activation => elementwise::activation,
        softmax(x, axis) => norm::softmax("Softmax", x, axis),
        log_softmax(x, axis) => norm::softmax("LogSoftmax", x, axis),
        layer_norm => norm::layer_norm,
        rms_norm => norm::rms_norm,
        batch_norm_running => norm::batch_norm_running,
        attention => attention::attention,
        embedding(weight, index, _) => index::embedding(weight, index),
        fake_quantize => quantized::fake_quantize,
        rnn => recurrent::rnn,
        lstm(x, hidden, cell, weights, biases, reverse) => recurrent::lstm(x, [hidden, cell], weights, biases, reverse),
        gru => recurrent::gru,
        conv_input_grad => window::conv_input_grad,
        // Training.
        activation_backward(_, _, _) => Err(training("activation_backward")),
        softmax_backward(_, _, _) => Err(training("softmax_backward")),
        log_softmax_backward(_, _, _) => Err(training("log_softmax_backward")),
        cross_entropy_backward(_, _, _, _, _) => Err(training("cross_entropy_backward")),
        linear_weight_grad(_, _) => Err(training("linear_weight_grad")),
        layer_norm_backward(_, _, _, _, _, _) => Err(training("layer_norm_backward")),
        rms_norm_backward(_, _, _, _, _) => Err(training("rms_norm_backward")),
        batch_norm_backward(_, _, _, _, _, _) => Err(training("batch_norm_backward")),
        attention_backward(_, _, _, _, _, _, _) => Err(training("scaled_dot_product_attention_backward")),
        embedding_backward(_, _, _, _) => Err(training("embedding_backward")),
        lstm_steps_backward(_, _, _, _, _, _) => Err(training("lstm_steps_backward")),
        conv_weight_grad(_, _, _, _) => Err(training("conv_weight_grad")),
        max_pool_backward(_, _, _) => Err(training("max_pool_backward")),
        avg_pool_backward(_, _, _) => Err(training("avg_pool_backward")),
    }

    fn cumsum(x: &T, axis: usize) -> Result<T> {
        let compute = |c: &[_]| Reference::cumsum(&c[0], axis);
        or_record(&[x], x.shape, compute, || reduce::cumsum(x, axis))
    }

    fn reshape(x: &T, shape: Shape) -> Result<T> {
        let compute = |c: &[_]| Reference::reshape(&c[0], shape);
        or_record(&[x], shape, compute, || movement::reshape(x, shape))
    }

    fn permute(x: &T, axes: Axes) -> Result<T> {
        let compute = |c: &[_]| Reference::permute(&c[0], axes);
        let shape = movement::permuted(&x.shape, axes)?;
        or_record(&[x], shape, compute, || movement::permute(x, axes))
    }

    fn expand(x: &T, shape: Shape) -> Result<T> {
        let compute = |c: &[_]| Reference::expand(&c[0], shape);
        or_record(&[x], shape, compute, || movement::expand(x, shape))
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        let compute = |c: &[_]| Reference::slice(&c[0], ranges);
        let shape = movement::slice_shape(ranges)?;
        or_record(&[x], shape, compute, || movement::slice(x, ranges))
    }

    fn pad(x: &T, padding: &[(usize, usize)], value: Scalar) -> Result<T> {
        let compute = |c: &[_]| Reference::pad(&c[0], padding, value);
        let shape = movement::padded(&x.shape, padding)?;
        or_record(&[x], shape, compute, || movement::pad(x, padding, value))
    }

    fn concat(xs: &[&T], axis: usize) -> Result<T> {
        let compute = |c: &[_]| Reference::concat(&c.iter().collect::<Vec<_>>(), axis);
        or_record(xs, movement::concat_shape(xs, axis), compute, || {
            movement::concat(xs, axis)
        })
    }

    fn gather(x: &T, axis: usize, index: &T) -> Result<T> {
        let compute = |c: &[_]| Reference::gather(&c[0], axis, &c[1]);
        or_record(&[x, index], index.shape, compute, || index::gather(x, axis, index))
    }

    fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
        let compute = |c: &[_]| Reference::index_select(&c[0], axis, &c[1]);
        let shape = x.shape.with_dim(axis, index.shape[0]);
        or_record(&[x, index], shape, compute, || index::index_select(x, axis, index))
    }

    fn accumulate_grad(_: T, _: &T) -> Result<T> {
        Err(training("accumulate_grad"))
    }

    fn sgd_step(_: &mut T, _: &T, _: Option<&mut T>, _: &SgdParams) -> Result<()> {
        Err(training("sgd_step"))
    }

    fn adam_step(_: &mut T, _: &T, _: &mut T, _: &mut T, _: Option<&mut T>, _: &AdamParams) -> Result<()> {
        Err(training("adam_step"))
    }
}
