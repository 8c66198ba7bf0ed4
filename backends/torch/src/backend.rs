//! The backend: calls the module of each op.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams,
    DType, HostTensor, PoolParams, ReduceOp, Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose,
};

use crate::error::guarded;
use crate::{
    TorchDevice, TorchTensor, elementwise, entropy, fused, index, memory, movement, norm, optim, reduce, window,
};

type T = TorchTensor;

/// Whether LibTorch has matrix products of a dtype on a device: on GPUs only of floats.
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
            // If something failed on the device, tch panics here.
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

    polygrad_core::backend_methods! {
        unary => elementwise::unary,
        compare => elementwise::compare,
        select => elementwise::select,
        cast => elementwise::cast,
        reduce => reduce::reduce,
        arg_reduce => reduce::arg_reduce,
        cumsum => reduce::cumsum,
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
        sort => reduce::sort,
        conv(x, weight, bias, residual, activation, params) =>
            decompose::epilogue::<Self>(window::conv(x, weight, params)?, bias, residual, activation),
        max_pool(x, params, positions) => window::max_pool(x, params).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool => window::avg_pool,
        compare_scalar => elementwise::compare_scalar,
        index_add => index::index_add,
        linear(x, weight, bias, activation) =>
            decompose::epilogue::<Self>(fused::linear(x, weight, bias)?, None, None, activation),
        activation => fused::activation,
        activation_backward => fused::activation_backward,
        softmax => fused::softmax,
        softmax_backward => fused::softmax_backward,
        log_softmax => fused::log_softmax,
        log_softmax_backward => fused::log_softmax_backward,
        cross_entropy => entropy::forward,
        cross_entropy_backward => entropy::backward,
        layer_norm => norm::layer_norm,
        layer_norm_backward => norm::layer_norm_backward,
        batch_norm => norm::batch_norm,
        batch_norm_backward => norm::batch_norm_backward,
        attention => fused::attention,
        embedding(weight, index, _) => index::embedding(weight, index),
        embedding_backward => index::embedding_backward,
        conv_input_grad => window::conv_input_grad,
        conv_weight_grad => window::conv_weight_grad,
        max_pool_backward => window::max_pool_backward,
        avg_pool_backward => window::avg_pool_backward,
    }

    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        elementwise::binary(op, a, b)
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        if !multiplies(a.dtype(), a.device()) {
            return decompose::integer_matmul::<Self>(a, b);
        }
        a.wrap("matmul", a.raw().f_matmul(b.raw()))
    }

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        elementwise::binary_scalar(op, x, scalar, reverse)
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
