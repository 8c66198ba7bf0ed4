//! Comparisons, selection by them, and conversions of dtype.

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{BoolDType, Scalar as BurnScalar};
use burn_wgpu::{CubeBackend, CubeTensor};
use polygrad_core::{BinaryOp, CompareOp, DType, Result, Scalar};

use crate::wgpu::elementwise::binary;
use crate::wgpu::kernel;
use crate::wgpu::movement::expand;
use crate::wgpu::support::{DTYPES, refused, unknown};
use crate::wgpu::tensor::{BOOL, BurnWgpuTensor as T, burn_dtype, burn_scalar, ensure_room};

pub(crate) fn compare(op: CompareOp, a: &T, b: &T) -> Result<T> {
    let shape = a.shape().broadcast(&b.shape())?;
    ensure_room(&shape, DType::Bool, a.device())?;
    if shape.numel() == 0 {
        return a.zeros(shape, DType::Bool);
    }
    let f: fn(CubeTensor, CubeTensor, BoolDType) -> CubeTensor = match (op, a.dtype().is_float()) {
        (CompareOp::Eq, true) => CubeBackend::float_equal,
        (CompareOp::Ne, true) => return not(&compare(CompareOp::Eq, a, b)?),
        (CompareOp::Lt, true) => CubeBackend::float_lower,
        (CompareOp::Le, true) => CubeBackend::float_lower_equal,
        (CompareOp::Gt, true) => CubeBackend::float_greater,
        (CompareOp::Ge, true) => CubeBackend::float_greater_equal,
        (CompareOp::Eq, false) => CubeBackend::int_equal,
        (CompareOp::Ne, false) => CubeBackend::int_not_equal,
        (CompareOp::Lt, false) => CubeBackend::int_lower,
        (CompareOp::Le, false) => CubeBackend::int_lower_equal,
        (CompareOp::Gt, false) => CubeBackend::int_greater,
        (CompareOp::Ge, false) => CubeBackend::int_greater_equal,
        _ => return Err(unknown(op.name(), a.device())),
    };
    let (a, b) = (expand(a, shape), expand(b, shape));
    Ok(a.like(f(a.operand(), b.operand(), BOOL), shape, DType::Bool))
}

pub(crate) fn compare_scalar(op: CompareOp, x: &T, scalar: Scalar) -> Result<T> {
    let (shape, dtype) = (x.shape(), x.dtype());
    ensure_room(&shape, DType::Bool, x.device())?;
    if x.is_empty() {
        return x.zeros(shape, DType::Bool);
    }
    let f: fn(CubeTensor, BurnScalar, BoolDType) -> CubeTensor = match (op, dtype.is_float()) {
        (CompareOp::Eq, true) => CubeBackend::float_equal_elem,
        (CompareOp::Ne, true) => return not(&compare_scalar(CompareOp::Eq, x, scalar)?),
        (CompareOp::Lt, true) => CubeBackend::float_lower_elem,
        (CompareOp::Le, true) => CubeBackend::float_lower_equal_elem,
        (CompareOp::Gt, true) => CubeBackend::float_greater_elem,
        (CompareOp::Ge, true) => CubeBackend::float_greater_equal_elem,
        (CompareOp::Eq, false) => CubeBackend::int_equal_elem,
        (CompareOp::Ne, false) => CubeBackend::int_not_equal_elem,
        (CompareOp::Lt, false) => CubeBackend::int_lower_elem,
        (CompareOp::Le, false) => CubeBackend::int_lower_equal_elem,
        (CompareOp::Gt, false) => CubeBackend::int_greater_elem,
        (CompareOp::Ge, false) => CubeBackend::int_greater_equal_elem,
        _ => return Err(unknown(op.name(), x.device())),
    };
    Ok(x.like(f(x.operand(), burn_scalar(scalar, dtype), BOOL), shape, DType::Bool))
}

pub(crate) fn is_nan(x: &T) -> T {
    if x.is_empty() {
        return x.like(x.operand(), x.shape(), DType::Bool);
    }
    x.like(CubeBackend::float_is_nan(x.operand(), BOOL), x.shape(), DType::Bool)
}

pub(crate) fn is_inf(x: &T) -> T {
    if x.is_empty() {
        return x.like(x.operand(), x.shape(), DType::Bool);
    }
    x.like(CubeBackend::float_is_inf(x.operand(), BOOL), x.shape(), DType::Bool)
}

pub(crate) fn is_finite(x: &T) -> Result<T> {
    not(&binary(BinaryOp::Or, &is_nan(x), &is_inf(x))?)
}

/// Also replaces Burn's "not equal" of floats, which is false for NaN, since naga translates it to an ordered
/// comparison.
fn not(x: &T) -> Result<T> {
    compare_scalar(CompareOp::Eq, x, Scalar::Int(0))
}

pub(crate) fn select(condition: &T, a: &T, b: &T) -> Result<T> {
    let shape = a.shape().broadcast(&b.shape())?.broadcast(&condition.shape())?;
    let dtype = a.dtype();
    ensure_room(&shape, dtype, a.device())?;
    if shape.numel() == 0 {
        return a.zeros(shape, dtype);
    }
    let (condition, a, b) = (expand(condition, shape), expand(a, shape), expand(b, shape));
    let chosen = CubeBackend::float_mask_where(b.operand(), condition.truths(), a.operand());
    Ok(a.like(chosen, shape, dtype))
}

pub(crate) fn cast(x: &T, dtype: DType) -> Result<T> {
    let (from, shape) = (x.dtype(), x.shape());
    if from == dtype {
        return Ok(x.clone());
    }
    if !DTYPES.contains(&dtype) {
        return Err(refused("to_dtype", dtype, x.device()));
    }
    ensure_room(&shape, dtype, x.device())?;
    if x.is_empty() {
        return x.zeros(shape, dtype);
    }
    if dtype == DType::Bool {
        return compare_scalar(CompareOp::Ne, x, Scalar::Int(0));
    }
    if from.is_float() {
        return Ok(kernel::truncate(x, dtype));
    }
    let cube = burn_cubecl::kernel::cast(x.operand(), burn_dtype(dtype));
    Ok(x.like(cube, shape, dtype))
}
