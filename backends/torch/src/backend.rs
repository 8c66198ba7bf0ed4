//! The backend: each op by the module that has it.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams,
    DType, HostTensor, PoolParams, ReduceOp, Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose,
};

use crate::error::guarded;
use crate::{
    TorchDevice, TorchTensor, elementwise, entropy, fused, index, memory, movement, norm, optim, reduce, window,
};

type T = TorchTensor;

/// Whether LibTorch has products of matrices of a dtype on a device: on GPUs of floats alone.
fn multiplies(dtype: DType, device: TorchDevice) -> bool {
    dtype.is_float() || device == TorchDevice::Cpu
}

/// LibTorch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Torch;

impl Backend for Torch {
    type Tensor = TorchTensor;
    type Device = TorchDevice;

    fn name() -> &'static str {
        "torch"
    }

    fn capabilities(device: &TorchDevice) -> Capabilities {
        let on_cpu = *device == TorchDevice::Cpu;
        let mut out = Capabilities::host(DType::ALL);
        out.asynchronous = !on_cpu;
        out.unified_memory = on_cpu;
        out
    }

    fn synchronize(device: &TorchDevice) -> Result<()> {
        match *device {
            TorchDevice::Cpu => Ok(()),
            // What went wrong on the device makes tch panic here.
            TorchDevice::Cuda(index) => guarded("synchronize", || {
                tch::Cuda::synchronize(index as i64);
                Ok(())
            }),
        }
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
    fn device(x: &T) -> TorchDevice {
        x.device()
    }

    fn from_host(host: HostTensor, device: &TorchDevice) -> Result<T> {
        memory::prepare();
        T::from_host(&host, *device)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &TorchDevice) -> Result<T> {
        memory::prepare();
        T::full(shape, value, dtype, *device)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &TorchDevice) -> Result<T> {
        elementwise::iota(len, start, step, dtype, *device)
    }

    fn unary(op: UnaryOp, x: &T) -> Result<T> {
        elementwise::unary(op, x)
    }

    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        elementwise::binary(op, a, b)
    }

    fn compare(op: CompareOp, a: &T, b: &T) -> Result<T> {
        elementwise::compare(op, a, b)
    }

    fn select(condition: &T, a: &T, b: &T) -> Result<T> {
        elementwise::select(condition, a, b)
    }

    fn cast(x: &T, dtype: DType) -> Result<T> {
        elementwise::cast(x, dtype)
    }

    fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
        reduce::reduce(op, x, axes, keepdims)
    }

    fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
        reduce::arg_reduce(op, x, axis, keepdims)
    }

    fn cumsum(x: &T, axis: usize) -> Result<T> {
        reduce::cumsum(x, axis)
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        if !multiplies(a.dtype(), a.device()) {
            return decompose::integer_matmul::<Self>(a, b);
        }
        a.wrap("matmul", a.raw().f_matmul(b.raw()))
    }

    fn reshape(x: &T, shape: Shape) -> Result<T> {
        movement::reshape(x, shape)
    }

    fn permute(x: &T, axes: Axes) -> Result<T> {
        movement::permute(x, axes)
    }

    fn expand(x: &T, shape: Shape) -> Result<T> {
        movement::expand(x, shape)
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        movement::slice(x, ranges)
    }

    fn pad(x: &T, padding: &[(usize, usize)], value: Scalar) -> Result<T> {
        movement::pad(x, padding, value)
    }

    fn concat(xs: &[&T], axis: usize) -> Result<T> {
        movement::concat(xs, axis)
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

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        elementwise::binary_scalar(op, x, scalar, reverse)
    }

    fn compare_scalar(op: CompareOp, x: &T, scalar: Scalar) -> Result<T> {
        elementwise::compare_scalar(op, x, scalar)
    }

    fn index_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        index::index_add(x, axis, index, src)
    }

    fn linear(x: &T, weight: &T, bias: Option<&T>, activation: Option<Activation>) -> Result<T> {
        decompose::epilogue::<Self>(fused::linear(x, weight, bias)?, None, None, activation)
    }

    fn activation(op: Activation, x: &T) -> Result<T> {
        fused::activation(op, x)
    }

    fn activation_backward(op: Activation, grad: &T, saved: &T) -> Result<T> {
        fused::activation_backward(op, grad, saved)
    }

    fn softmax(x: &T, axis: usize) -> Result<T> {
        fused::softmax(x, axis)
    }

    fn softmax_backward(grad: &T, output: &T, axis: usize) -> Result<T> {
        fused::softmax_backward(grad, output, axis)
    }

    fn log_softmax(x: &T, axis: usize) -> Result<T> {
        fused::log_softmax(x, axis)
    }

    fn log_softmax_backward(grad: &T, output: &T, axis: usize) -> Result<T> {
        fused::log_softmax_backward(grad, output, axis)
    }

    fn cross_entropy(logits: &T, target: &T, params: &CrossEntropyParams) -> Result<(T, T)> {
        entropy::forward(logits, target, params)
    }

    fn cross_entropy_backward(
        grad: &T,
        logits: &T,
        target: &T,
        logsumexp: &T,
        params: &CrossEntropyParams,
    ) -> Result<T> {
        entropy::backward(grad, logits, target, logsumexp, params)
    }

    fn layer_norm(x: &T, weight: Option<&T>, bias: Option<&T>, axes: usize, eps: f64) -> Result<(T, T, T)> {
        norm::layer_norm(x, weight, bias, axes, eps)
    }

    fn layer_norm_backward(grad: &T, x: &T, mean: &T, rstd: &T, weight: Option<&T>, axes: usize) -> Result<(T, T, T)> {
        norm::layer_norm_backward(grad, x, mean, rstd, weight, axes)
    }

    fn batch_norm(x: &T, weight: Option<&T>, bias: Option<&T>, eps: f64) -> Result<(T, T, T)> {
        norm::batch_norm(x, weight, bias, eps)
    }

    fn batch_norm_backward(grad: &T, x: &T, mean: &T, var: &T, weight: Option<&T>, eps: f64) -> Result<(T, T, T)> {
        norm::batch_norm_backward(grad, x, mean, var, weight, eps)
    }

    fn attention(q: &T, k: &T, v: &T, mask: Option<&T>, scale: f64, causal: bool) -> Result<T> {
        fused::attention(q, k, v, mask, scale, causal)
    }

    fn embedding(weight: &T, index: &T, _: Option<usize>) -> Result<T> {
        index::embedding(weight, index)
    }

    fn embedding_backward(grad: &T, index: &T, num_embeddings: usize, padding_idx: Option<usize>) -> Result<T> {
        index::embedding_backward(grad, index, num_embeddings, padding_idx)
    }

    fn conv_input_grad(grad: &T, weight: &T, input_shape: Shape, params: &ConvParams) -> Result<T> {
        window::conv_input_grad(grad, weight, input_shape, params)
    }

    fn conv_weight_grad(grad: &T, x: &T, weight_shape: Shape, params: &ConvParams) -> Result<T> {
        window::conv_weight_grad(grad, x, weight_shape, params)
    }

    fn max_pool_backward(grad: &T, indices: &T, input_shape: Shape) -> Result<T> {
        window::max_pool_backward(grad, indices, input_shape)
    }

    fn avg_pool_backward(grad: &T, input_shape: Shape, params: &PoolParams) -> Result<T> {
        window::avg_pool_backward(grad, input_shape, params)
    }

    fn accumulate_grad(acc: T, grad: &T) -> Result<T> {
        optim::accumulate_grad(acc, grad)
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
}
