//! The seam: each op's way to Burn.

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
        compare::compare(op, a, b)
    }

    fn select(condition: &T, a: &T, b: &T) -> Result<T> {
        compare::select(condition, a, b)
    }

    fn cast(x: &T, dtype: DType) -> Result<T> {
        compare::cast(x, dtype)
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
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        product::matmul(a, b)
    }

    fn reshape(x: &T, shape: Shape) -> Result<T> {
        movement::reshape(x, shape)
    }

    fn permute(x: &T, axes: Axes) -> Result<T> {
        Ok(movement::permute(x, axes))
    }

    fn expand(x: &T, shape: Shape) -> Result<T> {
        Ok(movement::expand(x, shape))
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        Ok(movement::slice(x, ranges))
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
        integer::sort(x, axis, descending)
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

    // Fused ops that Burn has, or that its memory can be gone over once for.

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        elementwise::binary_scalar(op, x, scalar, reverse)
    }

    fn compare_scalar(op: CompareOp, x: &T, scalar: Scalar) -> Result<T> {
        compare::compare_scalar(op, x, scalar)
    }

    fn index_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        index::index_add(x, axis, index, src)
    }

    fn linear(x: &T, weight: &T, bias: Option<&T>, activation: Option<Activation>) -> Result<T> {
        decompose::epilogue::<Self>(product::linear(x, weight, bias)?, None, None, activation)
    }

    fn activation(op: Activation, x: &T) -> Result<T> {
        activation::activation(op, x)
    }

    fn activation_backward(op: Activation, grad: &T, saved: &T) -> Result<T> {
        activation::activation_backward(op, grad, saved)
    }

    fn softmax(x: &T, axis: usize) -> Result<T> {
        if x.shape().numel() == 0 {
            return Ok(x.clone());
        }
        crate::flex::tensor::ensure_room(&x.shape(), x.dtype())?;
        Ok(T::new(Flex::softmax(x.operand()?, axis)))
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
