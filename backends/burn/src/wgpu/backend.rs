//! The backend's ops, each in terms of Burn.

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

/// Burn's ops and CubeCL's launches have no fallible form: they report errors, such as a shader that does not compile,
/// by a panic.
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

    polygrad_core::backend_methods! {
        unary(op, x) => guarded(op.name(), x.device(), || elementwise::unary(op, x)),
        compare(op, a, b) => guarded(op.name(), a.device(), || compare::compare(op, a, b)),
        select(condition, a, b) => guarded("where", a.device(), || compare::select(condition, a, b)),
        cast(x, dtype) => guarded("to_dtype", x.device(), || compare::cast(x, dtype)),
        reduce(op, x, axes, keepdims) => guarded(op.name(), x.device(), || reduce::reduce(op, x, axes, keepdims)),
        arg_reduce(op, x, axis, keepdims) =>
            guarded(op.name(), x.device(), || reduce::arg_reduce(op, x, axis, keepdims)),
        cumsum(x, axis) => guarded("cumsum", x.device(), || reduce::cumsum(x, axis)),
        reshape(x, shape) => guarded("reshape", x.device(), || Ok(movement::reshape(x, shape))),
        permute(x, axes) => guarded("permute", x.device(), || movement::permute(x, axes)),
        expand(x, shape) => guarded("expand", x.device(), || Ok(movement::expand(x, shape))),
        slice(x, ranges) => guarded("slice", x.device(), || movement::slice(x, ranges)),
        pad(x, padding, value) => guarded("pad", x.device(), || movement::pad(x, padding, value)),
        gather(x, axis, index) => guarded("gather", x.device(), || index::gather(x, axis, index)),
        scatter(x, axis, index, src) => guarded("scatter", x.device(), || index::scatter(x, axis, index, src)),
        scatter_add(x, axis, index, src) =>
            guarded("scatter_add", x.device(), || index::scatter_add(x, axis, index, src)),
        index_select(x, axis, index) => guarded("index_select", x.device(), || index::index_select(x, axis, index)),
        sort(x, axis, descending) => guarded("sort", x.device(), || reduce::sort(x, axis, descending)),
        conv(x, weight, bias, residual, activation, params) =>
            guarded("conv", x.device(), || window::conv(x, weight, params))
                .and_then(|y| decompose::epilogue::<Self>(y, bias, residual, activation)),
        max_pool(x, params, positions) =>
            guarded("max_pool", x.device(), || window::max_pool(x, params)).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool(x, params) => guarded("avg_pool", x.device(), || window::avg_pool(x, params)),
        compare_scalar(op, x, scalar) => guarded(op.name(), x.device(), || compare::compare_scalar(op, x, scalar)),
        conv_input_grad(grad, weight, input_shape, params) =>
            guarded("conv_input_grad", grad.device(), || window::conv_input_grad(grad, weight, input_shape, params)),
        conv_weight_grad(grad, x, weight_shape, params) =>
            guarded("conv_weight_grad", grad.device(), || window::conv_weight_grad(grad, x, weight_shape, params)),
    }

    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        guarded(op.name(), a.device(), || elementwise::binary(op, a, b))
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        if !a.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        guarded("matmul", a.device(), || product::matmul(a, b))
    }

    fn concat(xs: &[&T], axis: usize) -> Result<T> {
        match xs.first() {
            Some(first) => guarded("cat", first.device(), || movement::concat(xs, axis)),
            None => movement::concat(xs, axis),
        }
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
}
