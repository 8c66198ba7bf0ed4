//! The required ops of the trait. Fused ops are left to Polygrad's decompositions.

use polygrad::backend::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, HostTensor, PoolParams,
    ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, collect, decompose,
};

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

    polygrad::backend::backend_methods! {
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
    }

    fn binary(op: BinaryOp, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        elementwise::binary(op, a, b)
    }

    fn matmul(a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        matmul::matmul(a, b)
    }
}
