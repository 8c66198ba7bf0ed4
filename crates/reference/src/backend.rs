//! The required ops of [`Backend`]; fused ops use their decompositions.

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

    polygrad_core::backend_methods! {
        unary => elementwise::unary,
        compare => elementwise::compare,
        select => elementwise::select,
        cast => elementwise::cast,
        reduce => reduce::reduce,
        arg_reduce => reduce::arg_reduce,
        cumsum => reduce::cumsum,
        matmul => matmul::matmul,
        reshape(x, shape) => x.reshape(shape),
        permute => movement::permute,
        expand => movement::expand,
        slice => movement::slice,
        pad => movement::pad,
        concat => movement::concat,
        gather => indexing::gather,
        scatter => indexing::scatter,
        scatter_add => indexing::scatter_add,
        index_select => indexing::index_select,
        sort => sort::sort,
        conv(x, weight, bias, residual, activation, params) =>
            decompose::epilogue::<Self>(window::conv(x, weight, params)?, bias, residual, activation),
        max_pool(x, params, positions) => window::max_pool(x, params).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool => window::avg_pool,
    }

    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        elementwise::binary(op, a, b)
    }
}
