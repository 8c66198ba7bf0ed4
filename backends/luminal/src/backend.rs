//! The required ops of the seam, and one fused one. The others are left to Polygrad's decompositions.

use polygrad_core::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, Element, HostTensor,
    PoolParams, ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, decompose,
};

use crate::support::typed;
use crate::values::{Values, collect};
use crate::{LuminalDevice, LuminalTensor, elementwise, index, matmul, movement, pending, reduce, support, window};

/// The backend: a type without values, whose methods are the ops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Luminal;

impl Backend for Luminal {
    type Tensor = LuminalTensor;
    type Device = LuminalDevice;

    fn name() -> &'static str {
        "luminal"
    }

    fn capabilities(_: &LuminalDevice) -> Capabilities {
        let mut capabilities = Capabilities::host(support::DTYPES);
        capabilities.asynchronous = true;
        capabilities
    }

    fn synchronize(_: &LuminalDevice) -> Result<()> {
        pending::synchronize()
    }

    fn shape(x: &LuminalTensor) -> Shape {
        *x.shape()
    }

    fn dtype(x: &LuminalTensor) -> DType {
        x.dtype()
    }

    fn device(_: &LuminalTensor) -> LuminalDevice {
        LuminalDevice
    }

    fn from_host(host: HostTensor, _: &LuminalDevice) -> Result<LuminalTensor> {
        Ok(LuminalTensor::known(
            *host.shape(),
            host.dtype(),
            Values::from_host(&host)?,
        ))
    }

    fn to_host(x: &LuminalTensor) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, _: &LuminalDevice) -> Result<LuminalTensor> {
        LuminalTensor::full(shape, value, dtype)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, _: &LuminalDevice) -> Result<LuminalTensor> {
        let shape = Shape::new(&[len])?;
        let real = |i: usize| start.to_f64() + i as f64 * step.to_f64();
        let int = |i: usize| start.to_i64().wrapping_add((i as i64).wrapping_mul(step.to_i64()));
        let floats = matches!((start, step), (Scalar::Float(_), _) | (_, Scalar::Float(_)));
        typed!("arange", dtype, T => {
            let values = (0..len).map(|i| if floats { <T as Element>::from_f64(real(i)) } else { <T as Element>::from_i64(int(i)) });
            Ok(LuminalTensor::new(shape, collect(values)?))
        })
    }

    fn unary(op: UnaryOp, x: &LuminalTensor) -> Result<LuminalTensor> {
        elementwise::unary(op, x)
    }

    fn binary(op: BinaryOp, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        elementwise::binary(op, a, b)
    }

    fn compare(op: CompareOp, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
        elementwise::compare(op, a, b)
    }

    fn select(condition: &LuminalTensor, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
        elementwise::select(condition, a, b)
    }

    fn cast(x: &LuminalTensor, dtype: DType) -> Result<LuminalTensor> {
        elementwise::cast(x, dtype)
    }

    fn reduce(op: ReduceOp, x: &LuminalTensor, axes: Axes, keepdims: bool) -> Result<LuminalTensor> {
        reduce::reduce(op, x, axes, keepdims)
    }

    fn arg_reduce(op: ArgOp, x: &LuminalTensor, axis: usize, keepdims: bool) -> Result<LuminalTensor> {
        reduce::arg_reduce(op, x, axis, keepdims)
    }

    fn cumsum(x: &LuminalTensor, axis: usize) -> Result<LuminalTensor> {
        reduce::cumsum(x, axis)
    }

    fn matmul(a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
        if a.dtype() != DType::F32 {
            return decompose::integer_matmul::<Self>(a, b);
        }
        matmul::matmul(a, b)
    }

    fn reshape(x: &LuminalTensor, shape: Shape) -> Result<LuminalTensor> {
        movement::reshape(x, shape)
    }

    fn permute(x: &LuminalTensor, axes: Axes) -> Result<LuminalTensor> {
        Ok(movement::permute(x, axes))
    }

    fn expand(x: &LuminalTensor, shape: Shape) -> Result<LuminalTensor> {
        Ok(movement::expand(x, shape))
    }

    fn slice(x: &LuminalTensor, ranges: &[SliceRange]) -> Result<LuminalTensor> {
        Ok(movement::slice(x, ranges))
    }

    fn pad(x: &LuminalTensor, padding: &[(usize, usize)], value: Scalar) -> Result<LuminalTensor> {
        movement::pad(x, padding, value)
    }

    fn concat(xs: &[&LuminalTensor], axis: usize) -> Result<LuminalTensor> {
        movement::concat(xs, axis)
    }

    fn gather(x: &LuminalTensor, axis: usize, index: &LuminalTensor) -> Result<LuminalTensor> {
        index::gather(x, axis, index)
    }

    fn scatter(x: &LuminalTensor, axis: usize, index: &LuminalTensor, src: &LuminalTensor) -> Result<LuminalTensor> {
        index::scatter(x, axis, index, src)
    }

    fn scatter_add(
        x: &LuminalTensor,
        axis: usize,
        index: &LuminalTensor,
        src: &LuminalTensor,
    ) -> Result<LuminalTensor> {
        index::scatter_add(x, axis, index, src)
    }

    fn index_select(x: &LuminalTensor, axis: usize, index: &LuminalTensor) -> Result<LuminalTensor> {
        index::index_select(x, axis, index)
    }

    fn sort(x: &LuminalTensor, axis: usize, descending: bool) -> Result<(LuminalTensor, LuminalTensor)> {
        reduce::sort(x, axis, descending)
    }

    fn conv(
        x: &LuminalTensor,
        weight: &LuminalTensor,
        bias: Option<&LuminalTensor>,
        residual: Option<&LuminalTensor>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<LuminalTensor> {
        let y = window::conv(x, weight, params)?;
        decompose::epilogue::<Self>(y, bias, residual, activation)
    }

    fn max_pool(
        x: &LuminalTensor,
        params: &PoolParams,
        positions: bool,
    ) -> Result<(LuminalTensor, Option<LuminalTensor>)> {
        let (values, places) = window::max_pool(x, params)?;
        Ok((values, positions.then_some(places)))
    }

    fn avg_pool(x: &LuminalTensor, params: &PoolParams) -> Result<LuminalTensor> {
        window::avg_pool(x, params)
    }

    // The decomposition goes through f64, which luminal has not.
    fn avg_pool_backward(grad: &LuminalTensor, input_shape: Shape, params: &PoolParams) -> Result<LuminalTensor> {
        window::avg_pool_backward(grad, input_shape, params)
    }
}
