//! The backend's ops.

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

    polygrad_core::backend_methods! {
        unary => unary::unary,
        compare => binary::compare,
        select => binary::select,
        cast => binary::cast,
        reduce => reduce::reduce,
        arg_reduce => lines::arg_reduce,
        cumsum => lines::cumsum,
        reshape => movement::reshape,
        permute => movement::permute,
        expand => movement::expand,
        slice => movement::slice,
        pad => movement::pad,
        concat => movement::concat,
        gather => index::gather,
        scatter => index::scatter,
        scatter_add => index::scatter_add,
        index_select => index::index_select,
        sort => lines::sort,
        conv(x, weight, bias, residual, activation, params) =>
            decompose::epilogue::<Self>(conv::conv(x, weight, params)?, bias, residual, activation),
        max_pool(x, params, positions) => pool::max_pool(x, params).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool => pool::avg_pool,
        index_add => index::index_add,
        activation => activation::activation,
        activation_backward => activation::activation_backward,
        softmax => softmax::softmax,
        softmax_backward => softmax::softmax_backward,
        log_softmax => softmax::log_softmax,
        log_softmax_backward => softmax::log_softmax_backward,
        cross_entropy => softmax::cross_entropy,
        cross_entropy_backward => softmax::cross_entropy_backward,
        layer_norm => norm::layer_norm,
        layer_norm_backward => norm::layer_norm_backward,
        conv_input_grad => conv::conv_input_grad,
        conv_weight_grad => conv::conv_weight_grad,
        max_pool_backward => pool::max_pool_backward,
    }

    fn binary(op: BinaryOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        binary::binary(op, a, b)
    }

    fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        matmul::matmul(a, b)
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
