//! The required ops of the seam, and none of the fused ones.

use polygrad_core::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, HostTensor, PoolParams,
    ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, decompose,
};

use crate::{
    Reference, ReferenceDevice, ReferenceTensor, elementwise, indexing, matmul, movement, reduce, sort, window,
};

type T = ReferenceTensor;

impl Backend for Reference {
    type Tensor = ReferenceTensor;
    type Device = ReferenceDevice;

    fn name() -> &'static str {
        "reference"
    }

    fn capabilities(_: &ReferenceDevice) -> Capabilities {
        Capabilities::host(DType::ALL)
    }

    fn synchronize(_: &ReferenceDevice) -> Result<()> {
        Ok(())
    }

    fn shape(x: &T) -> Shape {
        *x.shape()
    }

    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    fn device(_: &T) -> ReferenceDevice {
        ReferenceDevice
    }

    fn from_host(host: HostTensor, _: &ReferenceDevice) -> Result<T> {
        ReferenceTensor::from_host(&host)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, _: &ReferenceDevice) -> Result<T> {
        ReferenceTensor::from_scalars(shape, dtype, |_| value)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, _: &ReferenceDevice) -> Result<T> {
        let shape = Shape::new(&[len])?;
        ReferenceTensor::from_scalars(shape, dtype, |i| match (start, step) {
            (Scalar::Float(_), _) | (_, Scalar::Float(_)) => Scalar::Float(start.to_f64() + i as f64 * step.to_f64()),
            _ => Scalar::Int(start.to_i64().wrapping_add((i as i64).wrapping_mul(step.to_i64()))),
        })
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
        matmul::matmul(a, b)
    }

    fn reshape(x: &T, shape: Shape) -> Result<T> {
        x.reshape(shape)
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
        indexing::gather(x, axis, index)
    }

    fn scatter(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        indexing::scatter(x, axis, index, src)
    }

    fn scatter_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        indexing::scatter_add(x, axis, index, src)
    }

    fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
        indexing::index_select(x, axis, index)
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
}
