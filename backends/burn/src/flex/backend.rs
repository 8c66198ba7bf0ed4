//! The backend's ops, each in terms of Burn.

use burn_backend::ops::ActivationOps;
use burn_flex::Flex;
use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, HostTensor,
    PoolParams, ReduceOp, Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose,
};

use crate::flex::{activation, compare, elementwise, host, index, integer, movement, optim, product, reduce, window};
use crate::{BurnDevice, BurnTensor};

/// The backend: see the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burn;

type T = BurnTensor;

impl Backend for Burn {
    type Tensor = BurnTensor;
    type Device = BurnDevice;

    fn name() -> &'static str {
        "burn"
    }

    fn capabilities(_: &BurnDevice) -> Capabilities {
        Capabilities::host(DType::ALL)
    }

    fn synchronize(_: &BurnDevice) -> Result<()> {
        Ok(())
    }

    fn shape(x: &T) -> Shape {
        x.shape()
    }

    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    fn device(_: &T) -> BurnDevice {
        BurnDevice::Cpu
    }

    #[inline]
    fn same_device(_: &T, _: &T) -> bool {
        true
    }

    fn from_host(host: HostTensor, _: &BurnDevice) -> Result<T> {
        host::from_host(&host)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        host::to_host(x)
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, _: &BurnDevice) -> Result<T> {
        T::full(shape, value, dtype)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, _: &BurnDevice) -> Result<T> {
        movement::iota(len, start, step, dtype)
    }

    polygrad_core::backend_methods! {
        unary => elementwise::unary,
        compare => compare::compare,
        select => compare::select,
        cast => compare::cast,
        reduce => reduce::reduce,
        arg_reduce => reduce::arg_reduce,
        cumsum => reduce::cumsum,
        reshape => movement::reshape,
        permute(x, axes) => Ok(movement::permute(x, axes)),
        expand(x, shape) => Ok(movement::expand(x, shape)),
        slice(x, ranges) => Ok(movement::slice(x, ranges)),
        pad => movement::pad,
        concat => movement::concat,
        gather => index::gather,
        scatter => index::scatter,
        scatter_add => index::scatter_add,
        index_select => index::index_select,
        sort => integer::sort,
        conv(x, weight, bias, residual, activation, params) =>
            decompose::epilogue::<Self>(window::conv(x, weight, params)?, bias, residual, activation),
        max_pool(x, params, positions) => window::max_pool(x, params).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool => window::avg_pool,
        compare_scalar => compare::compare_scalar,
        index_add => index::index_add,
        linear(x, weight, bias, activation) =>
            decompose::epilogue::<Self>(product::linear(x, weight, bias)?, None, None, activation),
        activation => activation::activation,
        activation_backward => activation::activation_backward,
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
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        product::matmul(a, b)
    }

    // Fused ops that Burn has, or that one pass over its memory can compute.

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        elementwise::binary_scalar(op, x, scalar, reverse)
    }

    fn softmax(x: &T, axis: usize) -> Result<T> {
        if x.shape().numel() == 0 {
            return Ok(x.clone());
        }
        crate::flex::tensor::ensure_room(&x.shape(), x.dtype())?;
        Ok(T::new(Flex::softmax(x.operand()?, axis)))
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
