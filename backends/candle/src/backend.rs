//! The seam.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams,
    DType, HostTensor, OpDesc, PoolParams, ReduceOp, Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose,
};

use crate::{
    Candle, CandleDevice, CandleTensor, activation, binary, conv, index, lines, matmul, movement, norm, optim, pool,
    reduce, softmax, support, unary,
};

type Tensor = CandleTensor;

impl Backend for Candle {
    type Tensor = CandleTensor;
    type Device = CandleDevice;

    fn name() -> &'static str {
        "candle"
    }

    fn capabilities(device: &CandleDevice) -> Capabilities {
        let mut capabilities = Capabilities::host(DType::ALL);
        capabilities.asynchronous = !device.is_cpu();
        capabilities.unified_memory = device.is_cpu();
        capabilities
    }

    fn supports(device: &CandleDevice, op: &OpDesc<'_>) -> Result<()> {
        support::supports(device, op)
    }

    fn synchronize(device: &CandleDevice) -> Result<()> {
        binary::synchronize(device)
    }

    fn shape(x: &Tensor) -> Shape {
        x.shape()
    }

    fn dtype(x: &Tensor) -> DType {
        x.dtype()
    }

    fn device(x: &Tensor) -> CandleDevice {
        x.device()
    }

    fn same_device(a: &Tensor, b: &Tensor) -> bool {
        a.raw().device().same_device(b.raw().device())
    }

    fn from_host(host: HostTensor, device: &CandleDevice) -> Result<Tensor> {
        Tensor::from_host(&host, device)
    }

    fn to_host(x: &Tensor) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &CandleDevice) -> Result<Tensor> {
        Tensor::full(shape, value, dtype, device)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &CandleDevice) -> Result<Tensor> {
        movement::iota(len, start, step, dtype, device)
    }

    fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
        unary::unary(op, x)
    }

    fn binary(op: BinaryOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        binary::binary(op, a, b)
    }

    fn compare(op: CompareOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        binary::compare(op, a, b)
    }

    fn select(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        binary::select(condition, a, b)
    }

    fn cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
        binary::cast(x, dtype)
    }

    fn reduce(op: ReduceOp, x: &Tensor, axes: Axes, keepdims: bool) -> Result<Tensor> {
        reduce::reduce(op, x, axes, keepdims)
    }

    fn arg_reduce(op: ArgOp, x: &Tensor, axis: usize, keepdims: bool) -> Result<Tensor> {
        lines::arg_reduce(op, x, axis, keepdims)
    }

    fn cumsum(x: &Tensor, axis: usize) -> Result<Tensor> {
        lines::cumsum(x, axis)
    }

    fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        matmul::matmul(a, b)
    }

    fn reshape(x: &Tensor, shape: Shape) -> Result<Tensor> {
        movement::reshape(x, shape)
    }

    fn permute(x: &Tensor, axes: Axes) -> Result<Tensor> {
        movement::permute(x, axes)
    }

    fn expand(x: &Tensor, shape: Shape) -> Result<Tensor> {
        movement::expand(x, shape)
    }

    fn slice(x: &Tensor, ranges: &[SliceRange]) -> Result<Tensor> {
        movement::slice(x, ranges)
    }

    fn pad(x: &Tensor, padding: &[(usize, usize)], value: Scalar) -> Result<Tensor> {
        movement::pad(x, padding, value)
    }

    fn concat(xs: &[&Tensor], axis: usize) -> Result<Tensor> {
        movement::concat(xs, axis)
    }

    fn gather(x: &Tensor, axis: usize, index: &Tensor) -> Result<Tensor> {
        index::gather(x, axis, index)
    }

    fn scatter(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        index::scatter(x, axis, index, src)
    }

    fn scatter_add(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        index::scatter_add(x, axis, index, src)
    }

    fn index_select(x: &Tensor, axis: usize, index: &Tensor) -> Result<Tensor> {
        index::index_select(x, axis, index)
    }

    fn sort(x: &Tensor, axis: usize, descending: bool) -> Result<(Tensor, Tensor)> {
        lines::sort(x, axis, descending)
    }

    fn conv(
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<Tensor> {
        let y = conv::conv(x, weight, params)?;
        decompose::epilogue::<Self>(y, bias, residual, activation)
    }

    fn max_pool(x: &Tensor, params: &PoolParams, positions: bool) -> Result<(Tensor, Option<Tensor>)> {
        let (values, places) = pool::max_pool(x, params)?;
        Ok((values, positions.then_some(places)))
    }

    fn avg_pool(x: &Tensor, params: &PoolParams) -> Result<Tensor> {
        pool::avg_pool(x, params)
    }

    fn index_add(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        index::index_add(x, axis, index, src)
    }

    fn activation(op: Activation, x: &Tensor) -> Result<Tensor> {
        activation::activation(op, x)
    }

    fn activation_backward(op: Activation, grad: &Tensor, saved: &Tensor) -> Result<Tensor> {
        activation::activation_backward(op, grad, saved)
    }

    fn softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
        softmax::softmax(x, axis)
    }

    fn softmax_backward(grad: &Tensor, output: &Tensor, axis: usize) -> Result<Tensor> {
        softmax::softmax_backward(grad, output, axis)
    }

    fn log_softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
        softmax::log_softmax(x, axis)
    }

    fn log_softmax_backward(grad: &Tensor, output: &Tensor, axis: usize) -> Result<Tensor> {
        softmax::log_softmax_backward(grad, output, axis)
    }

    fn cross_entropy(logits: &Tensor, target: &Tensor, params: &CrossEntropyParams) -> Result<(Tensor, Tensor)> {
        softmax::cross_entropy(logits, target, params)
    }

    fn cross_entropy_backward(
        grad: &Tensor,
        logits: &Tensor,
        target: &Tensor,
        logsumexp: &Tensor,
        params: &CrossEntropyParams,
    ) -> Result<Tensor> {
        softmax::cross_entropy_backward(grad, logits, target, logsumexp, params)
    }

    fn layer_norm(
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        axes: usize,
        eps: f64,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        norm::layer_norm(x, weight, bias, axes, eps)
    }

    fn layer_norm_backward(
        grad: &Tensor,
        x: &Tensor,
        mean: &Tensor,
        rstd: &Tensor,
        weight: Option<&Tensor>,
        axes: usize,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        norm::layer_norm_backward(grad, x, mean, rstd, weight, axes)
    }

    fn conv_input_grad(grad: &Tensor, weight: &Tensor, input_shape: Shape, params: &ConvParams) -> Result<Tensor> {
        conv::conv_input_grad(grad, weight, input_shape, params)
    }

    fn conv_weight_grad(grad: &Tensor, x: &Tensor, weight_shape: Shape, params: &ConvParams) -> Result<Tensor> {
        conv::conv_weight_grad(grad, x, weight_shape, params)
    }

    fn max_pool_backward(grad: &Tensor, indices: &Tensor, input_shape: Shape) -> Result<Tensor> {
        pool::max_pool_backward(grad, indices, input_shape)
    }

    fn accumulate_grad(acc: Tensor, grad: &Tensor) -> Result<Tensor> {
        optim::accumulate_grad(acc, grad)
    }

    fn sgd_step(param: &mut Tensor, grad: &Tensor, momentum: Option<&mut Tensor>, params: &SgdParams) -> Result<()> {
        optim::sgd_step(param, grad, momentum, params)
    }

    fn adam_step(
        param: &mut Tensor,
        grad: &Tensor,
        first: &mut Tensor,
        second: &mut Tensor,
        max_second: Option<&mut Tensor>,
        params: &AdamParams,
    ) -> Result<()> {
        optim::adam_step(param, grad, first, second, max_second, params)
    }
}
