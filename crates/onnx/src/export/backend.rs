//! The seam: each op is recorded, or computed at once where all that it needs is known.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, Composite, ConvParams,
    CrossEntropyParams, DType, Distribution, Error, HostTensor, OpDesc, PoolParams, RandomKey, ReduceOp, Result,
    Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose, random_host,
};
use polygrad_reference::Reference;

use super::fold::or_record;
use super::ops::support::training;
use super::ops::{
    attention, create, elementwise, index, linear, movement, norm, recurrent, reduce, resample, support, window,
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

    fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
        reduce::arg_reduce(op, x, axis, keepdims)
    }

    fn cumsum(x: &T, axis: usize) -> Result<T> {
        let compute = |c: &[_]| Reference::cumsum(&c[0], axis);
        or_record(&[x], x.shape, compute, || reduce::cumsum(x, axis))
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        linear::matmul(a, b)
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

    fn scatter(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        index::scatter(x, axis, index, src, false)
    }

    fn scatter_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        index::scatter(x, axis, index, src, true)
    }

    fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
        let compute = |c: &[_]| Reference::index_select(&c[0], axis, &c[1]);
        let shape = x.shape.with_dim(axis, index.shape[0]);
        or_record(&[x, index], shape, compute, || index::index_select(x, axis, index))
    }

    fn sort(x: &T, axis: usize, descending: bool) -> Result<(T, T)> {
        reduce::sort(x, axis, descending)
    }

    fn conv(
        x: &T,
        weight: &T,
        bias: Option<&T>,
        residual: Option<&T>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<T> {
        let y = window::conv(x, weight, params)?;
        decompose::epilogue::<Self>(y, bias, residual, activation)
    }

    fn max_pool(x: &T, params: &PoolParams, positions: bool) -> Result<(T, Option<T>)> {
        let (values, places) = window::max_pool(x, params)?;
        Ok((values, positions.then_some(places)))
    }

    fn avg_pool(x: &T, params: &PoolParams) -> Result<T> {
        window::avg_pool(x, params)
    }

    fn linear(x: &T, weight: &T, bias: Option<&T>, activation: Option<Activation>) -> Result<T> {
        decompose::epilogue::<Self>(linear::linear(x, weight, bias)?, None, None, activation)
    }

    fn activation(op: Activation, x: &T) -> Result<T> {
        elementwise::activation(op, x)
    }

    fn softmax(x: &T, axis: usize) -> Result<T> {
        norm::softmax("Softmax", x, axis)
    }

    fn log_softmax(x: &T, axis: usize) -> Result<T> {
        norm::softmax("LogSoftmax", x, axis)
    }

    fn layer_norm(x: &T, weight: Option<&T>, bias: Option<&T>, axes: usize, eps: f64) -> Result<(T, T, T)> {
        norm::layer_norm(x, weight, bias, axes, eps)
    }

    fn rms_norm(x: &T, weight: Option<&T>, axes: usize, eps: f64) -> Result<(T, T)> {
        norm::rms_norm(x, weight, axes, eps)
    }

    fn batch_norm_running(x: &T, mean: &T, var: &T, weight: Option<&T>, bias: Option<&T>, eps: f64) -> Result<T> {
        norm::batch_norm_running(x, mean, var, weight, bias, eps)
    }

    fn attention(q: &T, k: &T, v: &T, mask: Option<&T>, scale: f64, causal: bool) -> Result<T> {
        attention::attention(q, k, v, mask, scale, causal)
    }

    fn embedding(weight: &T, index: &T, _: Option<usize>) -> Result<T> {
        index::embedding(weight, index)
    }

    fn rnn(
        x: &T,
        hidden: &T,
        weights: [&T; 2],
        biases: Option<[&T; 2]>,
        activation: Activation,
        reverse: bool,
    ) -> Result<(T, T)> {
        recurrent::rnn(x, hidden, weights, biases, activation, reverse)
    }

    fn lstm(
        x: &T,
        hidden: &T,
        cell: &T,
        weights: [&T; 2],
        biases: Option<[&T; 2]>,
        reverse: bool,
    ) -> Result<(T, T, T)> {
        recurrent::lstm(x, [hidden, cell], weights, biases, reverse)
    }

    fn gru(
        x: &T,
        hidden: &T,
        weights: [&T; 2],
        biases: Option<[&T; 2]>,
        reset_after: bool,
        reverse: bool,
    ) -> Result<(T, T)> {
        recurrent::gru(x, hidden, weights, biases, reset_after, reverse)
    }

    fn conv_input_grad(grad: &T, weight: &T, input_shape: Shape, params: &ConvParams) -> Result<T> {
        window::conv_input_grad(grad, weight, input_shape, params)
    }

    // Training.

    fn activation_backward(_: Activation, _: &T, _: &T) -> Result<T> {
        Err(training("activation_backward"))
    }

    fn softmax_backward(_: &T, _: &T, _: usize) -> Result<T> {
        Err(training("softmax_backward"))
    }

    fn log_softmax_backward(_: &T, _: &T, _: usize) -> Result<T> {
        Err(training("log_softmax_backward"))
    }

    fn cross_entropy_backward(_: &T, _: &T, _: &T, _: &T, _: &CrossEntropyParams) -> Result<T> {
        Err(training("cross_entropy_backward"))
    }

    fn linear_weight_grad(_: &T, _: &T) -> Result<(T, T)> {
        Err(training("linear_weight_grad"))
    }

    fn layer_norm_backward(_: &T, _: &T, _: &T, _: &T, _: Option<&T>, _: usize) -> Result<(T, T, T)> {
        Err(training("layer_norm_backward"))
    }

    fn rms_norm_backward(_: &T, _: &T, _: &T, _: Option<&T>, _: usize) -> Result<(T, T)> {
        Err(training("rms_norm_backward"))
    }

    fn batch_norm_backward(_: &T, _: &T, _: &T, _: &T, _: Option<&T>, _: f64) -> Result<(T, T, T)> {
        Err(training("batch_norm_backward"))
    }

    fn attention_backward(_: &T, _: &T, _: &T, _: &T, _: Option<&T>, _: f64, _: bool) -> Result<(T, T, T)> {
        Err(training("scaled_dot_product_attention_backward"))
    }

    fn embedding_backward(_: &T, _: &T, _: usize, _: Option<usize>) -> Result<T> {
        Err(training("embedding_backward"))
    }

    fn conv_weight_grad(_: &T, _: &T, _: Shape, _: &ConvParams) -> Result<T> {
        Err(training("conv_weight_grad"))
    }

    fn max_pool_backward(_: &T, _: &T, _: Shape) -> Result<T> {
        Err(training("max_pool_backward"))
    }

    fn avg_pool_backward(_: &T, _: Shape, _: &PoolParams) -> Result<T> {
        Err(training("avg_pool_backward"))
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
