//! The required ops of the seam. The fused ones are left to Polygrad's decompositions.

use polygrad::backend::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, HostTensor, PoolParams,
    ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, decompose,
};

use crate::tensor::collect;
use crate::{Toy, ToyDevice, ToyTensor, elementwise, index, matmul, movement, reduce, support, window};

impl Backend for Toy {
    type Tensor = ToyTensor;
    type Device = ToyDevice;

    fn name() -> &'static str {
        "toy"
    }

    fn capabilities(_: &ToyDevice) -> Capabilities {
        Capabilities::host(support::DTYPES)
    }

    fn synchronize(_: &ToyDevice) -> Result<()> {
        Ok(())
    }

    fn shape(x: &ToyTensor) -> Shape {
        *x.shape()
    }

    fn dtype(x: &ToyTensor) -> DType {
        x.dtype()
    }

    fn device(_: &ToyTensor) -> ToyDevice {
        ToyDevice
    }

    fn from_host(host: HostTensor, _: &ToyDevice) -> Result<ToyTensor> {
        ToyTensor::from_host(&host)
    }

    fn to_host(x: &ToyTensor) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, _: &ToyDevice) -> Result<ToyTensor> {
        ToyTensor::full(shape, value, dtype)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, _: &ToyDevice) -> Result<ToyTensor> {
        let shape = Shape::new(&[len])?;
        let real = |i: usize| start.to_f64() + i as f64 * step.to_f64();
        let int = |i: usize| start.to_i64().wrapping_add((i as i64).wrapping_mul(step.to_i64()));
        let x = match (start, step) {
            (Scalar::Float(_), _) | (_, Scalar::Float(_)) => ToyTensor::new(shape, collect((0..len).map(real))?),
            _ => ToyTensor::new(shape, collect((0..len).map(int))?),
        };
        elementwise::cast(&x, dtype)
    }

    fn unary(op: UnaryOp, x: &ToyTensor) -> Result<ToyTensor> {
        elementwise::unary(op, x)
    }

    fn binary(op: BinaryOp, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        elementwise::binary(op, a, b)
    }

    fn compare(op: CompareOp, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
        elementwise::compare(op, a, b)
    }

    fn select(condition: &ToyTensor, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
        elementwise::select(condition, a, b)
    }

    fn cast(x: &ToyTensor, dtype: DType) -> Result<ToyTensor> {
        elementwise::cast(x, dtype)
    }

    fn reduce(op: ReduceOp, x: &ToyTensor, axes: Axes, keepdims: bool) -> Result<ToyTensor> {
        reduce::reduce(op, x, axes, keepdims)
    }

    fn arg_reduce(op: ArgOp, x: &ToyTensor, axis: usize, keepdims: bool) -> Result<ToyTensor> {
        reduce::arg_reduce(op, x, axis, keepdims)
    }

    fn cumsum(x: &ToyTensor, axis: usize) -> Result<ToyTensor> {
        reduce::cumsum(x, axis)
    }

    fn matmul(a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        matmul::matmul(a, b)
    }

    fn reshape(x: &ToyTensor, shape: Shape) -> Result<ToyTensor> {
        movement::reshape(x, shape)
    }

    fn permute(x: &ToyTensor, axes: Axes) -> Result<ToyTensor> {
        Ok(movement::permute(x, axes))
    }

    fn expand(x: &ToyTensor, shape: Shape) -> Result<ToyTensor> {
        Ok(movement::expand(x, shape))
    }

    fn slice(x: &ToyTensor, ranges: &[SliceRange]) -> Result<ToyTensor> {
        Ok(movement::slice(x, ranges))
    }

    fn pad(x: &ToyTensor, padding: &[(usize, usize)], value: Scalar) -> Result<ToyTensor> {
        movement::pad(x, padding, value)
    }

    fn concat(xs: &[&ToyTensor], axis: usize) -> Result<ToyTensor> {
        movement::concat(xs, axis)
    }

    fn gather(x: &ToyTensor, axis: usize, index: &ToyTensor) -> Result<ToyTensor> {
        index::gather(x, axis, index)
    }

    fn scatter(x: &ToyTensor, axis: usize, index: &ToyTensor, src: &ToyTensor) -> Result<ToyTensor> {
        index::scatter(x, axis, index, src)
    }

    fn scatter_add(x: &ToyTensor, axis: usize, index: &ToyTensor, src: &ToyTensor) -> Result<ToyTensor> {
        index::scatter_add(x, axis, index, src)
    }

    fn index_select(x: &ToyTensor, axis: usize, index: &ToyTensor) -> Result<ToyTensor> {
        index::index_select(x, axis, index)
    }

    fn sort(x: &ToyTensor, axis: usize, descending: bool) -> Result<(ToyTensor, ToyTensor)> {
        reduce::sort(x, axis, descending)
    }

    fn conv(
        x: &ToyTensor,
        weight: &ToyTensor,
        bias: Option<&ToyTensor>,
        residual: Option<&ToyTensor>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<ToyTensor> {
        let y = window::conv(x, weight, params)?;
        decompose::epilogue::<Self>(y, bias, residual, activation)
    }

    fn max_pool(x: &ToyTensor, params: &PoolParams, positions: bool) -> Result<(ToyTensor, Option<ToyTensor>)> {
        let (values, places) = window::max_pool(x, params)?;
        Ok((values, positions.then_some(places)))
    }

    fn avg_pool(x: &ToyTensor, params: &PoolParams) -> Result<ToyTensor> {
        window::avg_pool(x, params)
    }
}
