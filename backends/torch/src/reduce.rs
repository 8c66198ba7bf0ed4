//! Reductions, scans and sorting.

use polygrad_core::{ArgOp, Axes, DType, ReduceOp, Result};

use crate::error::{Named, refused, unknown};
use crate::tensor::{TorchTensor, kind};

pub(crate) fn reduce(op: ReduceOp, x: &TorchTensor, axes: Axes, keepdims: bool) -> Result<TorchTensor> {
    let (name, dtype) = (op.name(), x.dtype());
    if !op.accepts(dtype) {
        return Err(refused(name, dtype));
    }
    let dims: Vec<i64> = axes.iter().map(|axis| axis as i64).collect();
    // To LibTorch, an empty list of axes means all axes.
    if dims.is_empty() {
        return Ok(x.clone());
    }
    let (t, keep) = (x.raw(), Some(kind(dtype)));
    let out = match op {
        ReduceOp::Sum => t.f_sum_dim_intlist(&dims[..], keepdims, keep),
        ReduceOp::Mean => t.f_mean_dim(&dims[..], keepdims, keep),
        ReduceOp::Max => t.f_amax(&dims[..], keepdims),
        ReduceOp::Min => t.f_amin(&dims[..], keepdims),
        ReduceOp::Any => t.f_any_dims(&dims[..], keepdims),
        ReduceOp::All => t.f_all_dims(&dims[..], keepdims),
        ReduceOp::Prod => return prod(x, &axes, keepdims),
        _ => return Err(unknown(name)),
    };
    x.wrap(name, out)
}

/// Multiplies along one axis after the other, the last one first, so that the others keep their numbers.
fn prod(x: &TorchTensor, axes: &Axes, keepdims: bool) -> Result<TorchTensor> {
    let mut order: Vec<usize> = axes.iter().collect();
    order.sort_unstable();
    let mut out = x.clone();
    // Floats are rounded once, by a separate cast at the end: LibTorch would cast the operands of the last step, and ∞
    // · 0 is NaN.
    let wide = if x.dtype().is_float() && order.len() > 1 {
        DType::F64
    } else {
        x.dtype()
    };
    for &axis in order.iter().rev() {
        out = out.wrap(
            "prod",
            out.raw().f_prod_dim_int(axis as i64, keepdims, Some(kind(wide))),
        )?;
    }
    if wide == x.dtype() {
        return Ok(out);
    }
    out.wrap("prod", out.raw().f_to_dtype(kind(x.dtype()), false, false))
}

pub(crate) fn arg_reduce(op: ArgOp, x: &TorchTensor, axis: usize, keepdims: bool) -> Result<TorchTensor> {
    // LibTorch does not order bools.
    let bytes = match x.dtype() {
        DType::Bool => Some(x.raw().f_to_dtype(kind(DType::U8), false, false).named(op.name())?),
        _ => None,
    };
    let t = bytes.as_ref().unwrap_or(x.raw());
    let out = match op {
        ArgOp::Max => t.f_argmax(axis as i64, keepdims),
        ArgOp::Min => t.f_argmin(axis as i64, keepdims),
        _ => return Err(unknown(op.name())),
    };
    x.wrap(op.name(), out)
}

pub(crate) fn cumsum(x: &TorchTensor, axis: usize) -> Result<TorchTensor> {
    if x.dtype() == DType::Bool {
        return Err(refused("cumsum", x.dtype()));
    }
    x.wrap("cumsum", x.raw().f_cumsum(axis as i64, Some(kind(x.dtype()))))
}

pub(crate) fn sort(x: &TorchTensor, axis: usize, descending: bool) -> Result<(TorchTensor, TorchTensor)> {
    let (values, positions) = x.raw().f_sort_stable(true, axis as i64, descending).named("sort")?;
    Ok((
        TorchTensor::new(values, x.device())?,
        TorchTensor::new(positions, x.device())?,
    ))
}
