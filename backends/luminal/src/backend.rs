//! The backend's required ops, and one fused op. The others are left to Polygrad's decompositions.

use polygrad_core::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, Element, HostTensor,
    PoolParams, ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, collect, decompose,
};

use crate::support::typed;
use crate::values::Values;
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

    polygrad_core::backend_methods! {
        unary => elementwise::unary,
        compare => elementwise::compare,
        select => elementwise::select,
        cast => elementwise::cast,
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
        sort => reduce::sort,
        conv(x, weight, bias, residual, activation, params) =>
            decompose::epilogue::<Self>(window::conv(x, weight, params)?, bias, residual, activation),
        max_pool(x, params, positions) => window::max_pool(x, params).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool => window::avg_pool,
        // The decomposition uses f64, which luminal lacks.
        avg_pool_backward => window::avg_pool_backward,
    }

    fn binary(op: BinaryOp, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        elementwise::binary(op, a, b)
    }

    fn matmul(a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
        if a.dtype() != DType::F32 {
            return decompose::integer_matmul::<Self>(a, b);
        }
        matmul::matmul(a, b)
    }
}
