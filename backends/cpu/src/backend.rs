//! The seam's methods.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams,
    DType, Distribution, Error, HostTensor, OpDesc, PoolParams, Prepack, RandomKey, ReduceOp, Result, Scalar,
    SgdParams, Shape, SliceRange, UnaryOp, decompose,
};

use crate::fused::{
    attention, batch_norm, cross_entropy, embedding, gru, linear_grad, lstm, lstm_steps, norm, optim, softmax,
};
use crate::ops::{
    activation, binary, compare, convert, create, index, join, matmul, reduce, scan, select, sort, unary,
};
use crate::{Cpu, CpuDevice, CpuTensor, buffers, conv};

type T = CpuTensor;

impl Backend for Cpu {
    type Tensor = CpuTensor;
    type Device = CpuDevice;

    fn name() -> &'static str {
        "cpu"
    }

    fn capabilities(_: &CpuDevice) -> Capabilities {
        Capabilities::host(DType::ALL)
    }

    /// As by default, but without a list on the heap: recurrent layers ask in each call.
    fn supports(device: &CpuDevice, op: &OpDesc<'_>) -> Result<()> {
        op.check(&DType::ALL).map_err(|e| e.with_device(device))
    }

    fn synchronize(_: &CpuDevice) -> Result<()> {
        buffers::verdict()
    }

    #[inline]
    fn shape(x: &T) -> Shape {
        *x.shape()
    }

    #[inline]
    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    #[inline]
    fn device(x: &T) -> CpuDevice {
        x.device()
    }

    /// Always: all CPU devices share the host's memory.
    #[inline]
    fn same_device(_: &T, _: &T) -> bool {
        true
    }

    fn from_host(host: HostTensor, device: &CpuDevice) -> Result<T> {
        CpuTensor::from_host(&host, *device)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &CpuDevice) -> Result<T> {
        create::full(shape, value, dtype, *device)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &CpuDevice) -> Result<T> {
        create::iota(len, start, step, dtype, *device)
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey, device: &CpuDevice) -> Result<T> {
        create::random(shape, distribution, dtype, key, *device)
    }

    fn unary(op: UnaryOp, x: &T) -> Result<T> {
        unary::unary(op, x)
    }

    #[inline]
    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        binary::binary(op, a, b)
    }

    fn compare(op: CompareOp, a: &T, b: &T) -> Result<T> {
        compare::compare(op, a, b)
    }

    fn select(condition: &T, a: &T, b: &T) -> Result<T> {
        select::select(condition, a, b)
    }

    fn cast(x: &T, dtype: DType) -> Result<T> {
        convert::cast(x, dtype)
    }

    fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
        reduce::reduce(op, x, axes, keepdims)
    }

    fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
        scan::arg_reduce(op, x, axis, keepdims)
    }

    fn cumsum(x: &T, axis: usize) -> Result<T> {
        scan::cumsum(x, axis)
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        matmul::matmul(a, b)
    }

    #[inline]
    fn reshape(x: &T, shape: Shape) -> Result<T> {
        x.reshaped(shape)
    }

    #[inline]
    fn permute(x: &T, axes: Axes) -> Result<T> {
        if axes.len() != x.shape().rank() || axes.iter().any(|axis| axis >= axes.len()) {
            return Err(
                Error::invalid(format!("{axes:?} does not reorder the axes of {}", x.shape())).with_op("permute"),
            );
        }
        Ok(x.with_layout(x.layout().permute(axes)))
    }

    #[inline]
    fn expand(x: &T, shape: Shape) -> Result<T> {
        if !x.shape().broadcasts_to(&shape) {
            return Err(Error::shape(format!("{} does not broadcast to {shape}", x.shape())).with_op("expand"));
        }
        Ok(x.with_layout(x.layout().expand(shape)))
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        let fits = ranges.len() == x.shape().rank() && ranges.iter().zip(x.shape().iter()).all(|(r, &dim)| r.fits(dim));
        if !fits {
            return Err(Error::out_of_range(format!("{ranges:?} does not fit shape {}", x.shape())).with_op("slice"));
        }
        Ok(x.with_layout(x.layout().slice(ranges)))
    }

    fn pad(x: &T, padding: &[(usize, usize)], value: Scalar) -> Result<T> {
        join::pad(x, padding, value)
    }

    fn concat(xs: &[&T], axis: usize) -> Result<T> {
        join::concat(xs, axis)
    }

    fn gather(x: &T, axis: usize, index: &T) -> Result<T> {
        index::gather(x, axis, index)
    }

    fn scatter(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        index::scatter(x, axis, index, src)
    }

    fn scatter_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        index::scatter_add(x, axis, index, src)
    }

    fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
        index::index_select(x, axis, index)
    }

    fn sort(x: &T, axis: usize, descending: bool) -> Result<(T, T)> {
        sort::sort(x, axis, descending)
    }

    fn conv(
        x: &T,
        weight: &T,
        bias: Option<&T>,
        residual: Option<&T>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<T> {
        conv::conv(x, weight, bias, residual, activation, params)
    }

    fn conv_input_grad(grad: &T, weight: &T, input_shape: Shape, params: &ConvParams) -> Result<T> {
        conv::conv_input_grad(grad, weight, input_shape, params)
    }

    fn conv_weight_grad(grad: &T, x: &T, weight_shape: Shape, params: &ConvParams) -> Result<T> {
        conv::conv_weight_grad(grad, x, weight_shape, params)
    }

    fn max_pool(x: &T, params: &PoolParams, positions: bool) -> Result<(T, Option<T>)> {
        conv::max_pool(x, params, positions)
    }

    fn avg_pool(x: &T, params: &PoolParams) -> Result<T> {
        conv::avg_pool(x, params)
    }

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        binary::binary_scalar(op, x, scalar, reverse)
    }

    fn compare_scalar(op: CompareOp, x: &T, scalar: Scalar) -> Result<T> {
        compare::compare_scalar(op, x, scalar)
    }

    fn index_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        index::index_add(x, axis, index, src)
    }

    fn linear(x: &T, weight: &T, bias: Option<&T>, activation: Option<Activation>) -> Result<T> {
        matmul::linear(x, weight, bias, activation)
    }

    fn linear_weight_grad(grad: &T, x: &T) -> Result<(T, T)> {
        linear_grad::linear_weight_grad(grad, x)
    }

    fn attention(q: &T, k: &T, v: &T, mask: Option<&T>, scale: f64, causal: bool) -> Result<T> {
        attention::attention(q, k, v, mask, scale, causal)
    }

    fn attention_backward(
        grad: &T,
        q: &T,
        k: &T,
        v: &T,
        mask: Option<&T>,
        scale: f64,
        causal: bool,
    ) -> Result<(T, T, T)> {
        attention::attention_backward(grad, q, k, v, mask, scale, causal)
    }

    fn prepack(weight: &T, kind: Prepack) -> Result<T> {
        match kind {
            Prepack::Linear => matmul::prepack(weight),
            Prepack::Conv => Ok(conv::prepack(weight)),
            _ => Ok(weight.clone()),
        }
    }

    fn lstm(
        x: &T,
        hidden: &T,
        cell: &T,
        weights: [&T; 2],
        biases: Option<[&T; 2]>,
        reverse: bool,
    ) -> Result<(T, T, T)> {
        lstm::lstm(x, hidden, cell, weights, biases, reverse)
    }

    fn gru(
        x: &T,
        hidden: &T,
        weights: [&T; 2],
        biases: Option<[&T; 2]>,
        reset_after: bool,
        reverse: bool,
    ) -> Result<(T, T)> {
        gru::gru(x, hidden, weights, biases, reset_after, reverse)
    }

    fn max_pool_backward(grad: &T, indices: &T, input_shape: Shape) -> Result<T> {
        conv::max_pool_backward(grad, indices, input_shape)
    }

    fn avg_pool_backward(grad: &T, input_shape: Shape, params: &PoolParams) -> Result<T> {
        conv::avg_pool_backward(grad, input_shape, params)
    }

    fn activation(op: Activation, x: &T) -> Result<T> {
        activation::activation(op, x)
    }

    fn activation_backward(op: Activation, grad: &T, saved: &T) -> Result<T> {
        activation::activation_backward(op, grad, saved)
    }

    fn softmax(x: &T, axis: usize) -> Result<T> {
        softmax::softmax(x, axis)
    }

    fn softmax_backward(grad: &T, output: &T, axis: usize) -> Result<T> {
        softmax::softmax_backward(grad, output, axis)
    }

    fn log_softmax(x: &T, axis: usize) -> Result<T> {
        softmax::log_softmax(x, axis)
    }

    fn log_softmax_backward(grad: &T, output: &T, axis: usize) -> Result<T> {
        softmax::log_softmax_backward(grad, output, axis)
    }

    fn cross_entropy(logits: &T, target: &T, params: &CrossEntropyParams) -> Result<(T, T)> {
        cross_entropy::cross_entropy(logits, target, params)
    }

    fn cross_entropy_backward(
        grad: &T,
        logits: &T,
        target: &T,
        logsumexp: &T,
        params: &CrossEntropyParams,
    ) -> Result<T> {
        cross_entropy::cross_entropy_backward(grad, logits, target, logsumexp, params)
    }

    fn layer_norm(x: &T, weight: Option<&T>, bias: Option<&T>, axes: usize, eps: f64) -> Result<(T, T, T)> {
        norm::layer_norm(x, weight, bias, axes, eps)
    }

    fn layer_norm_backward(grad: &T, x: &T, mean: &T, rstd: &T, weight: Option<&T>, axes: usize) -> Result<(T, T, T)> {
        norm::layer_norm_backward(grad, x, mean, rstd, weight, axes)
    }

    fn rms_norm(x: &T, weight: Option<&T>, axes: usize, eps: f64) -> Result<(T, T)> {
        norm::rms_norm(x, weight, axes, eps)
    }

    fn rms_norm_backward(grad: &T, x: &T, rstd: &T, weight: Option<&T>, axes: usize) -> Result<(T, T)> {
        norm::rms_norm_backward(grad, x, rstd, weight, axes)
    }

    fn batch_norm(x: &T, weight: Option<&T>, bias: Option<&T>, eps: f64) -> Result<(T, T, T)> {
        batch_norm::batch_norm(x, weight, bias, eps)
    }

    fn batch_norm_backward(grad: &T, x: &T, mean: &T, var: &T, weight: Option<&T>, eps: f64) -> Result<(T, T, T)> {
        batch_norm::batch_norm_backward(grad, x, mean, var, weight, eps)
    }

    fn lstm_steps(x: &T, hidden: &T, cell: &T, weights: [&T; 2], bias: Option<&T>, reverse: bool) -> Result<(T, T)> {
        lstm_steps::lstm_steps(x, hidden, cell, weights, bias, reverse)
    }

    fn lstm_steps_backward(
        grad: &T,
        cell: &T,
        weight_hh: &T,
        states: &T,
        activations: &T,
        reverse: bool,
    ) -> Result<(T, T, T)> {
        lstm_steps::lstm_steps_backward(grad, cell, weight_hh, states, activations, reverse)
    }

    fn embedding_backward(grad: &T, index: &T, num_embeddings: usize, padding_idx: Option<usize>) -> Result<T> {
        embedding::embedding_backward(grad, index, num_embeddings, padding_idx)
    }

    fn sgd_step(param: &mut T, grad: &T, momentum: Option<&mut T>, params: &SgdParams) -> Result<()> {
        optim::sgd_step(param, grad, momentum, params)
    }

    fn adam_step(
        param: &mut T,
        grad: &T,
        first: &mut T,
        second: &mut T,
        max_second: Option<&mut T>,
        params: &AdamParams,
    ) -> Result<()> {
        optim::adam_step(param, grad, first, second, max_second, params)
    }

    fn accumulate_grad(mut acc: T, grad: &T) -> Result<T> {
        if acc.is_writable() && acc.shape() == grad.shape() && acc.dtype() == grad.dtype() {
            binary::in_place(BinaryOp::Add, &mut acc, grad)?;
            return Ok(acc);
        }
        binary::binary(BinaryOp::Add, &acc, grad)
    }

    fn slice_scatter(x: &mut T, src: &T, axis: usize, start: usize) -> Result<()> {
        join::slice_scatter(x, src, axis, start)
    }
}
