//! The seam: each op's way to Burn.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use polygrad_core::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, Error, ErrorKind,
    HostTensor, PoolParams, ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, decompose,
};

use crate::wgpu::{compare, elementwise, host, index, movement, product, reduce, window};
use crate::{BurnWgpuDevice, BurnWgpuTensor};

/// The backend on Burn's wgpu devices: see the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BurnWgpu;

type T = BurnWgpuTensor;

/// Burn's ops and CubeCL's launches have no fallible form: what they refuse, such as a shader that does not
/// compile, is a panic.
fn guarded<R>(op: &'static str, device: BurnWgpuDevice, f: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let cause = cause(panic.as_ref());
        Err(Error::new(ErrorKind::DeviceError, format!("Burn failed: {cause}"))
            .with_op(op)
            .with_device(device))
    })
}

fn cause(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "for a reason that it does not say".to_owned())
}

impl Backend for BurnWgpu {
    type Tensor = BurnWgpuTensor;
    type Device = BurnWgpuDevice;

    fn name() -> &'static str {
        "burn"
    }

    fn capabilities(device: &BurnWgpuDevice) -> Capabilities {
        let mut capabilities = Capabilities::host(device.dtypes());
        capabilities.asynchronous = true;
        capabilities.unified_memory = false;
        capabilities
    }

    fn synchronize(device: &BurnWgpuDevice) -> Result<()> {
        guarded("synchronize", *device, || {
            let done = burn_std::future::block_on(device.cube().client().sync());
            done.map_err(|error| host::failed(&error.to_string(), *device))
        })
    }

    fn shape(x: &T) -> Shape {
        x.shape()
    }

    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    fn device(x: &T) -> BurnWgpuDevice {
        x.device()
    }

    fn from_host(host: HostTensor, device: &BurnWgpuDevice) -> Result<T> {
        guarded("from_host", *device, || host::from_host(&host, *device))
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        guarded("to_host", x.device(), || host::to_host(x))
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &BurnWgpuDevice) -> Result<T> {
        guarded("full", *device, || T::full(shape, value, dtype, *device))
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &BurnWgpuDevice) -> Result<T> {
        guarded("iota", *device, || movement::iota(len, start, step, dtype, *device))
    }

    fn unary(op: UnaryOp, x: &T) -> Result<T> {
        guarded(op.name(), x.device(), || elementwise::unary(op, x))
    }

    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        guarded(op.name(), a.device(), || elementwise::binary(op, a, b))
    }

    fn compare(op: CompareOp, a: &T, b: &T) -> Result<T> {
        guarded(op.name(), a.device(), || compare::compare(op, a, b))
    }

    fn select(condition: &T, a: &T, b: &T) -> Result<T> {
        guarded("where", a.device(), || compare::select(condition, a, b))
    }

    fn cast(x: &T, dtype: DType) -> Result<T> {
        guarded("to_dtype", x.device(), || compare::cast(x, dtype))
    }

    fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
        guarded(op.name(), x.device(), || reduce::reduce(op, x, axes, keepdims))
    }

    fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
        guarded(op.name(), x.device(), || reduce::arg_reduce(op, x, axis, keepdims))
    }

    fn cumsum(x: &T, axis: usize) -> Result<T> {
        guarded("cumsum", x.device(), || reduce::cumsum(x, axis))
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        guarded("matmul", a.device(), || product::matmul(a, b))
    }

    fn reshape(x: &T, shape: Shape) -> Result<T> {
        guarded("reshape", x.device(), || Ok(movement::reshape(x, shape)))
    }

    fn permute(x: &T, axes: Axes) -> Result<T> {
        guarded("permute", x.device(), || movement::permute(x, axes))
    }

    fn expand(x: &T, shape: Shape) -> Result<T> {
        guarded("expand", x.device(), || Ok(movement::expand(x, shape)))
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        guarded("slice", x.device(), || movement::slice(x, ranges))
    }

    fn pad(x: &T, padding: &[(usize, usize)], value: Scalar) -> Result<T> {
        guarded("pad", x.device(), || movement::pad(x, padding, value))
    }

    fn concat(xs: &[&T], axis: usize) -> Result<T> {
        match xs.first() {
            Some(first) => guarded("cat", first.device(), || movement::concat(xs, axis)),
            None => movement::concat(xs, axis),
        }
    }

    fn gather(x: &T, axis: usize, index: &T) -> Result<T> {
        guarded("gather", x.device(), || index::gather(x, axis, index))
    }

    fn scatter(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        guarded("scatter", x.device(), || index::scatter(x, axis, index, src))
    }

    fn scatter_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        guarded("scatter_add", x.device(), || index::scatter_add(x, axis, index, src))
    }

    fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
        guarded("index_select", x.device(), || index::index_select(x, axis, index))
    }

    fn sort(x: &T, axis: usize, descending: bool) -> Result<(T, T)> {
        guarded("sort", x.device(), || reduce::sort(x, axis, descending))
    }

    fn conv(
        x: &T,
        weight: &T,
        bias: Option<&T>,
        residual: Option<&T>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<T> {
        let y = guarded("conv", x.device(), || window::conv(x, weight, params))?;
        decompose::epilogue::<Self>(y, bias, residual, activation)
    }

    fn max_pool(x: &T, params: &PoolParams, positions: bool) -> Result<(T, Option<T>)> {
        let (values, places) = guarded("max_pool", x.device(), || window::max_pool(x, params))?;
        Ok((values, positions.then_some(places)))
    }

    fn avg_pool(x: &T, params: &PoolParams) -> Result<T> {
        guarded("avg_pool", x.device(), || window::avg_pool(x, params))
    }

    // Fused ops that Burn has.

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        guarded(op.name(), x.device(), || {
            elementwise::binary_scalar(op, x, scalar, reverse)
        })
    }

    fn compare_scalar(op: CompareOp, x: &T, scalar: Scalar) -> Result<T> {
        guarded(op.name(), x.device(), || compare::compare_scalar(op, x, scalar))
    }

    fn conv_input_grad(grad: &T, weight: &T, input_shape: Shape, params: &ConvParams) -> Result<T> {
        guarded("conv_input_grad", grad.device(), || {
            window::conv_input_grad(grad, weight, input_shape, params)
        })
    }

    fn conv_weight_grad(grad: &T, x: &T, weight_shape: Shape, params: &ConvParams) -> Result<T> {
        guarded("conv_weight_grad", grad.device(), || {
            window::conv_weight_grad(grad, x, weight_shape, params)
        })
    }
}
