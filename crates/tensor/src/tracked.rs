//! Tensors with gradients as a backend, so that the decompositions of fused ops can be differentiated.

use std::marker::PhantomData;

use polygrad_core::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, HostTensor, OpDesc,
    PoolParams, ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, decompose,
};

use crate::{Tensor, inference};

/// A backend whose tensors are [`Tensor<B>`]. It only has core ops: fused ops are decomposed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tracked<B>(PhantomData<B>);

impl<B: Backend> Backend for Tracked<B> {
    type Tensor = Tensor<B>;
    type Device = B::Device;

    fn name() -> &'static str {
        B::name()
    }

    fn capabilities(device: &B::Device) -> Capabilities {
        B::capabilities(device)
    }

    fn supports(device: &B::Device, op: &OpDesc<'_>) -> Result<()> {
        B::supports(device, op)
    }

    fn synchronize(device: &B::Device) -> Result<()> {
        B::synchronize(device)
    }

    fn shape(x: &Tensor<B>) -> Shape {
        x.shape()
    }

    fn dtype(x: &Tensor<B>) -> DType {
        x.dtype()
    }

    fn device(x: &Tensor<B>) -> B::Device {
        B::device(&x.value)
    }

    fn from_host(host: HostTensor, device: &B::Device) -> Result<Tensor<B>> {
        B::from_host(host, device).map(Tensor::from_inner)
    }

    fn to_host(x: &Tensor<B>) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &B::Device) -> Result<Tensor<B>> {
        B::full(shape, value, dtype, device).map(Tensor::from_inner)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &B::Device) -> Result<Tensor<B>> {
        B::iota(len, start, step, dtype, device).map(Tensor::from_inner)
    }

    fn unary(op: UnaryOp, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.unary(op)
    }

    fn binary(op: BinaryOp, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
        a.binary(op, b)
    }

    fn binary_scalar(op: BinaryOp, x: &Tensor<B>, scalar: Scalar, reverse: bool) -> Result<Tensor<B>> {
        x.binary_scalar(op, scalar, reverse)
    }

    fn compare(op: CompareOp, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
        a.compare(op, b)
    }

    fn select(condition: &Tensor<B>, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
        Tensor::where_(condition, a, b)
    }

    fn cast(x: &Tensor<B>, dtype: DType) -> Result<Tensor<B>> {
        x.to_dtype(dtype)
    }

    fn reduce(op: ReduceOp, x: &Tensor<B>, axes: Axes, keepdims: bool) -> Result<Tensor<B>> {
        x.reduce_axes(op, axes, keepdims)
    }

    fn arg_reduce(op: ArgOp, x: &Tensor<B>, axis: usize, keepdims: bool) -> Result<Tensor<B>> {
        x.arg_reduce(op, axis as isize, keepdims)
    }

    fn cumsum(x: &Tensor<B>, axis: usize) -> Result<Tensor<B>> {
        x.cumsum(axis as isize)
    }

    fn matmul(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
        a.matmul(b)
    }

    fn reshape(x: &Tensor<B>, shape: Shape) -> Result<Tensor<B>> {
        x.reshape(shape)
    }

    fn permute(x: &Tensor<B>, axes: Axes) -> Result<Tensor<B>> {
        x.permute_axes(axes)
    }

    fn expand(x: &Tensor<B>, shape: Shape) -> Result<Tensor<B>> {
        x.expand(shape)
    }

    fn slice(x: &Tensor<B>, ranges: &[SliceRange]) -> Result<Tensor<B>> {
        x.slice(ranges)
    }

    fn pad(x: &Tensor<B>, padding: &[(usize, usize)], value: Scalar) -> Result<Tensor<B>> {
        x.pad(padding, value)
    }

    fn concat(xs: &[&Tensor<B>], axis: usize) -> Result<Tensor<B>> {
        Tensor::cat(xs, axis as isize)
    }

    fn gather(x: &Tensor<B>, axis: usize, index: &Tensor<B>) -> Result<Tensor<B>> {
        x.gather(axis as isize, index)
    }

    fn scatter(x: &Tensor<B>, axis: usize, index: &Tensor<B>, src: &Tensor<B>) -> Result<Tensor<B>> {
        x.scatter(axis as isize, index, src)
    }

    fn scatter_add(x: &Tensor<B>, axis: usize, index: &Tensor<B>, src: &Tensor<B>) -> Result<Tensor<B>> {
        x.scatter_add(axis as isize, index, src)
    }

    fn index_select(x: &Tensor<B>, axis: usize, index: &Tensor<B>) -> Result<Tensor<B>> {
        x.index_select(axis as isize, index)
    }

    fn sort(x: &Tensor<B>, axis: usize, descending: bool) -> Result<(Tensor<B>, Tensor<B>)> {
        x.sort(axis as isize, descending)
    }

    fn conv(
        x: &Tensor<B>,
        weight: &Tensor<B>,
        bias: Option<&Tensor<B>>,
        residual: Option<&Tensor<B>>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<Tensor<B>> {
        decompose::epilogue::<Self>(x.conv(weight, bias, params)?, None, residual, activation)
    }

    fn conv_input_grad(
        grad: &Tensor<B>,
        weight: &Tensor<B>,
        input_shape: Shape,
        params: &ConvParams,
    ) -> Result<Tensor<B>> {
        grad.conv_input_grad(weight, input_shape, params)
    }

    fn conv_weight_grad(
        grad: &Tensor<B>,
        x: &Tensor<B>,
        weight_shape: Shape,
        params: &ConvParams,
    ) -> Result<Tensor<B>> {
        grad.conv_weight_grad(x, weight_shape, params)
    }

    fn max_pool(x: &Tensor<B>, params: &PoolParams, positions: bool) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        inference::max_pool(x, params, positions)
    }

    fn avg_pool(x: &Tensor<B>, params: &PoolParams) -> Result<Tensor<B>> {
        x.avg_pool(params)
    }

    fn index_add(x: &Tensor<B>, axis: usize, index: &Tensor<B>, src: &Tensor<B>) -> Result<Tensor<B>> {
        x.index_add(axis as isize, index, src)
    }

    fn sum_to(x: &Tensor<B>, shape: Shape) -> Result<Tensor<B>> {
        x.sum_to(shape)
    }
}
