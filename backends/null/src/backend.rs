//! The backend's ops: the shapes and dtypes of their results.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, BlockScheme, Capabilities, CompareOp, ConvParams,
    CrossEntropyParams, DType, Distribution, Error, HostTensor, Op, OpDesc, Outputs, PoolParams, Prepack, RandomKey,
    ReduceOp, Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose,
};

use crate::{NullDevice, NullTensor};

/// The backend: see the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Null;

type T = NullTensor;

impl Null {
    fn call(op: Op, tensors: &[&T]) -> Result<Outputs<T>> {
        let Some(&x) = tensors.first() else {
            return Err(Error::invalid("an op without tensors").with_op(op.name()));
        };
        let view = match &op {
            Op::Reshape(shape) => x.layout().reshape(*shape),
            Op::Permute(axes) => Some(x.layout().permute(*axes)),
            Op::Expand(shape) => Some(x.layout().expand(*shape)),
            Op::Slice(ranges) => Some(x.layout().slice(ranges)),
            Op::SumTo(shape) if *shape == x.shape() => return Ok(Outputs::one(x.clone())),
            Op::Prepack(_) => return Ok(Outputs::one(x.clone())),
            _ => None,
        };
        if let Some(layout) = view {
            return x.view(layout).map(Outputs::one);
        }
        let types: Vec<_> = tensors.iter().map(|x| x.tensor_type()).collect();
        T::results(x.device(), op.results(&types)?)
    }
}

impl Backend for Null {
    type Tensor = NullTensor;
    type Device = NullDevice;

    fn name() -> &'static str {
        "null"
    }

    fn capabilities(_: &NullDevice) -> Capabilities {
        Capabilities::host(DType::ALL)
    }

    /// Supports everything, since it computes nothing.
    fn supports(_: &NullDevice, _: &OpDesc<'_>) -> Result<()> {
        Ok(())
    }

    fn synchronize(_: &NullDevice) -> Result<()> {
        Ok(())
    }

    fn shape(x: &T) -> Shape {
        x.shape()
    }

    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    fn device(x: &T) -> NullDevice {
        x.device().clone()
    }

    fn from_host(host: HostTensor, device: &NullDevice) -> Result<T> {
        T::result(device, *host.shape(), host.dtype())
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        Err(Error::unsupported("this backend keeps no values, only shapes")
            .with_op("to_host")
            .with_operands([(x.shape(), x.dtype())])
            .with_device(x.device())
            .with_hint("run what needs values on a backend that computes, such as cpu"))
    }

    fn full(shape: Shape, _: Scalar, dtype: DType, device: &NullDevice) -> Result<T> {
        T::result(device, shape, dtype)
    }

    fn iota(len: usize, _: Scalar, _: Scalar, dtype: DType, device: &NullDevice) -> Result<T> {
        T::result(device, Shape::new(&[len])?, dtype)
    }

    fn random(shape: Shape, _: Distribution, dtype: DType, _: RandomKey, device: &NullDevice) -> Result<T> {
        T::result(device, shape, dtype)
    }

    // Fused ops, too, since their decompositions would count memory that a kernel does not need.
    polygrad_core::call_methods! {}

    fn accumulate_grad(mut acc: T, _: &T) -> Result<T> {
        T::write([Some(&mut acc)])?;
        Ok(acc)
    }

    fn slice_scatter(x: &mut T, src: &T, axis: usize, start: usize) -> Result<()> {
        decompose::check_slice_scatter((&x.shape(), x.dtype()), (&src.shape(), src.dtype()), axis, start)?;
        T::write([Some(x)])
    }

    fn sgd_step(param: &mut T, _: &T, momentum: Option<&mut T>, _: &SgdParams) -> Result<()> {
        T::write([Some(param), momentum])
    }

    fn adam_step(
        param: &mut T,
        _: &T,
        first: &mut T,
        second: &mut T,
        max_second: Option<&mut T>,
        _: &AdamParams,
    ) -> Result<()> {
        T::write([Some(param), Some(first), Some(second), max_second])
    }
}
