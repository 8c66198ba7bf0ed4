//! Reductions, running sums and sorting.

use std::cmp::Ordering;

use burn_backend::IntDType;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_wgpu::{CubeBackend, CubeTensor};
use polygrad_core::{ArgOp, Axes, BinaryOp, DType, Element, HostTensor, ReduceOp, Result, Scalar, Shape};

use crate::wgpu::elementwise::binary_scalar;
use crate::wgpu::host::{from_host, to_host};
use crate::wgpu::movement::reshape;
use crate::wgpu::support::{refused, unknown};
use crate::wgpu::tensor::{BurnWgpuTensor as T, ensure_room};

pub(crate) fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
    let (dtype, shape) = (x.dtype(), x.shape());
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype, x.device()));
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let out = shape.reduced(axes, keepdims);
    if x.is_empty() {
        let value = i64::from(matches!(op, ReduceOp::Prod | ReduceOp::All));
        return T::full(out, Scalar::Int(value), dtype, x.device());
    }
    let mut result = x.clone();
    // Axes side by side are one, from the last to the first.
    let mut end = shape.rank();
    while end > 0 {
        if !axes.contains(end - 1) {
            end -= 1;
            continue;
        }
        let mut start = end - 1;
        while start > 0 && axes.contains(start - 1) {
            start -= 1;
        }
        let mut dims = result.shape();
        let outer = dims[..start].iter().product();
        let inner = dims[end..].iter().product();
        let count = dims[start..end].iter().product();
        // What is reduced of one element is that element; Burn's kernel would read past the end of one that is broadcast.
        if count != 1 {
            let folded = reshape(&result, Shape::from([outer, count, inner]));
            dims.dims_mut()[start..end].fill(1);
            result = reshape(&along(op, &folded)?, dims);
        }
        end = start;
    }
    if op == ReduceOp::Mean {
        let count: usize = axes.iter().map(|axis| shape[axis]).product();
        result = binary_scalar(BinaryOp::Div, &result, Scalar::Float(count as f64), false)?;
    }
    Ok(reshape(&result, out))
}

/// Reduces the middle one of three axes.
fn along(op: ReduceOp, x: &T) -> Result<T> {
    let dtype = x.dtype();
    let out = x.shape().with_dim(1, 1);
    let truth = dtype == DType::Bool;
    let f: fn(CubeTensor, usize) -> CubeTensor = match (op, dtype.is_float()) {
        (ReduceOp::Sum | ReduceOp::Mean, true) => CubeBackend::float_sum_dim,
        (ReduceOp::Sum, false) => CubeBackend::int_sum_dim,
        (ReduceOp::Prod, true) => CubeBackend::float_prod_dim,
        (ReduceOp::Prod, false) => CubeBackend::int_prod_dim,
        (ReduceOp::Any, _) => CubeBackend::bool_any_dim,
        (ReduceOp::All, _) => CubeBackend::bool_all_dim,
        (ReduceOp::Max, true) => CubeBackend::float_max_dim,
        (ReduceOp::Min, true) => CubeBackend::float_min_dim,
        (ReduceOp::Max, false) if truth => CubeBackend::bool_any_dim,
        (ReduceOp::Min, false) if truth => CubeBackend::bool_all_dim,
        (ReduceOp::Max, false) => CubeBackend::int_max_dim,
        (ReduceOp::Min, false) => CubeBackend::int_min_dim,
        _ => return Err(unknown(op.name(), x.device())),
    };
    let operand = if truth { x.truths() } else { x.operand() };
    Ok(x.like(f(operand, 1), out, dtype))
}

pub(crate) fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
    let out = x.shape().reduced(Axes::one(axis), keepdims);
    if out.numel() == 0 {
        return x.zeros(out, DType::I64);
    }
    let operand = x.operand();
    let found = match (op, x.dtype().is_float()) {
        (ArgOp::Max, true) => CubeBackend::float_argmax(operand, axis, IntDType::I64),
        (ArgOp::Min, true) => CubeBackend::float_argmin(operand, axis, IntDType::I64),
        (ArgOp::Max, false) => CubeBackend::int_argmax(operand, axis),
        (ArgOp::Min, false) => CubeBackend::int_argmin(operand, axis),
        _ => return Err(unknown(op.name(), x.device())),
    };
    let found = burn_cubecl::kernel::cast(found, burn_backend::DType::I64);
    Ok(reshape(&x.like(found, x.shape().with_dim(axis, 1), DType::I64), out))
}

pub(crate) fn cumsum(x: &T, axis: usize) -> Result<T> {
    let (shape, dtype) = (x.shape(), x.dtype());
    if dtype == DType::Bool {
        return Err(refused("cumsum", dtype, x.device()));
    }
    if x.is_empty() {
        return Ok(x.clone());
    }
    ensure_room(&shape, dtype, x.device())?;
    let sums = if dtype.is_float() {
        CubeBackend::float_cumsum(x.operand(), axis)
    } else {
        CubeBackend::int_cumsum(x.operand(), axis)
    };
    Ok(x.like(sums, shape, dtype))
}

/// On the host: so does Burn, whose wgpu devices have no kernel for it, and whose order is not stable.
pub(crate) fn sort(x: &T, axis: usize, descending: bool) -> Result<(T, T)> {
    let host = to_host(x)?;
    let (values, order) = match x.dtype() {
        DType::F32 => sorted::<f32>(&host, axis, descending)?,
        DType::I64 => sorted::<i64>(&host, axis, descending)?,
        DType::I32 => sorted::<i32>(&host, axis, descending)?,
        DType::Bool => sorted::<bool>(&host, axis, descending)?,
        other => return Err(refused("sort", other, x.device())),
    };
    Ok((from_host(&values, x.device())?, from_host(&order, x.device())?))
}

fn sorted<E: Element>(host: &HostTensor, axis: usize, descending: bool) -> Result<(HostTensor, HostTensor)> {
    let (shape, values) = (*host.shape(), host.as_slice::<E>()?);
    let (dim, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let (mut sorted, mut order) = (values.to_vec(), vec![0i64; values.len()]);
    let lines = values.len().checked_div(dim).unwrap_or(0);
    for line in 0..lines {
        let start = line / inner * dim * inner + line % inner;
        let at = |i: usize| values[start + i * inner];
        let mut places: Vec<usize> = (0..dim).collect();
        if descending {
            places.sort_by(|&a, &b| order_of(at(b), at(a)));
        } else {
            places.sort_by(|&a, &b| order_of(at(a), at(b)));
        }
        for (to, &from) in places.iter().enumerate() {
            sorted[start + to * inner] = at(from);
            order[start + to * inner] = from as i64;
        }
    }
    Ok((HostTensor::new(shape, sorted)?, HostTensor::new(shape, order)?))
}

/// By size, NaN as the largest; zeros of either sign are equal.
fn order_of<E: Element>(a: E, b: E) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| {
        let nan = |x: E| x.to_f64().is_nan();
        nan(a).cmp(&nan(b))
    })
}
