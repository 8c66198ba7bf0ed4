//! Comparisons, selection by them, and conversions of dtype.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_flex::ops::{comparison, mask};
use burn_flex::{Flex, FlexTensor};
use burn_std::{BoolDType, DType as BurnDType, FloatDType, IntDType};
use polygrad_core::{CompareOp, DType, Result, Scalar, bf16, f16};

use crate::flex::elementwise::{NATIVE, rounded};
use crate::flex::movement::expand;
use crate::flex::support::unknown;
use crate::flex::tensor::{BurnTensor, ensure_room};

type Compare = fn(FlexTensor, FlexTensor, BoolDType) -> FlexTensor;

pub(crate) fn compare(op: CompareOp, a: &BurnTensor, b: &BurnTensor) -> Result<BurnTensor> {
    let shape = a.shape().broadcast(&b.shape())?;
    ensure_room(&shape, DType::Bool)?;
    let f: Compare = match (op, a.dtype().is_float()) {
        (CompareOp::Eq, true) => comparison::equal,
        (CompareOp::Ne, true) => comparison::not_equal,
        (CompareOp::Lt, true) => comparison::lower,
        (CompareOp::Le, true) => comparison::lower_equal,
        (CompareOp::Gt, true) => comparison::greater,
        (CompareOp::Ge, true) => comparison::greater_equal,
        (CompareOp::Eq, false) => comparison::int_equal,
        (CompareOp::Ne, false) => comparison::int_not_equal,
        (CompareOp::Lt, false) => comparison::int_lower,
        (CompareOp::Le, false) => comparison::int_lower_equal,
        (CompareOp::Gt, false) => comparison::int_greater,
        (CompareOp::Ge, false) => comparison::int_greater_equal,
        _ => return Err(unknown(op.name())),
    };
    let (a, b) = (expand(&plain(a), shape), expand(&plain(b), shape));
    Ok(BurnTensor::new(f(a.operand()?, b.operand()?, NATIVE)))
}

pub(crate) fn compare_scalar(op: CompareOp, x: &BurnTensor, scalar: Scalar) -> Result<BurnTensor> {
    let scalar = rounded(scalar, x.dtype());
    ensure_room(&x.shape(), DType::Bool)?;
    let x = plain(x);
    let operand = x.operand()?;
    Ok(BurnTensor::new(if x.dtype().is_float() {
        let f: fn(FlexTensor, f64, BoolDType) -> FlexTensor = match op {
            CompareOp::Eq => comparison::equal_elem,
            CompareOp::Ne => comparison::not_equal_elem,
            CompareOp::Lt => comparison::lower_elem,
            CompareOp::Le => comparison::lower_equal_elem,
            CompareOp::Gt => comparison::greater_elem,
            CompareOp::Ge => comparison::greater_equal_elem,
            _ => return Err(unknown(op.name())),
        };
        f(operand, scalar.to_f64(), NATIVE)
    } else {
        let scalar = scalar.to_i64().into();
        match op {
            CompareOp::Eq => Flex::int_equal_elem(operand, scalar, NATIVE),
            CompareOp::Ne => Flex::int_not_equal_elem(operand, scalar, NATIVE),
            CompareOp::Lt => Flex::int_lower_elem(operand, scalar, NATIVE),
            CompareOp::Le => Flex::int_lower_equal_elem(operand, scalar, NATIVE),
            CompareOp::Gt => Flex::int_greater_elem(operand, scalar, NATIVE),
            CompareOp::Ge => Flex::int_greater_equal_elem(operand, scalar, NATIVE),
            _ => return Err(unknown(op.name())),
        }
    }))
}

/// Bools as their bytes; other dtypes unchanged.
pub(crate) fn plain(x: &BurnTensor) -> BurnTensor {
    if x.dtype() == DType::Bool {
        BurnTensor::new(x.retagged(BurnDType::U8))
    } else {
        x.clone()
    }
}

/// A result that was computed on the bytes of bools, as bool.
pub(crate) fn as_dtype(x: BurnTensor, dtype: DType) -> BurnTensor {
    if dtype == DType::Bool {
        BurnTensor::new(x.retagged(crate::flex::tensor::BOOL))
    } else {
        x
    }
}

pub(crate) fn select(condition: &BurnTensor, a: &BurnTensor, b: &BurnTensor) -> Result<BurnTensor> {
    let shape = a.shape().broadcast(&b.shape())?.broadcast(&condition.shape())?;
    let dtype = a.dtype();
    ensure_room(&shape, dtype)?;
    let condition = expand(condition, shape).operand()?;
    let (a, b) = (expand(&plain(a), shape).operand()?, expand(&plain(b), shape).operand()?);
    let out = match dtype {
        DType::F32 => mask::mask_where_f32(b, condition, a),
        DType::F64 => mask::mask_where_f64(b, condition, a),
        DType::F16 => mask::mask_where::<f16>(b, condition, a),
        DType::BF16 => mask::mask_where::<bf16>(b, condition, a),
        DType::I64 => mask::mask_where::<i64>(b, condition, a),
        DType::I32 => mask::mask_where::<i32>(b, condition, a),
        DType::U8 | DType::Bool => mask::mask_where::<u8>(b, condition, a),
    };
    Ok(as_dtype(BurnTensor::new(out), dtype))
}

pub(crate) fn cast(x: &BurnTensor, dtype: DType) -> Result<BurnTensor> {
    let from = x.dtype();
    if from == dtype {
        return Ok(x.clone());
    }
    ensure_room(&x.shape(), dtype)?;
    if dtype == DType::Bool {
        return compare_scalar(CompareOp::Ne, x, Scalar::Int(0));
    }
    let operand = x.operand()?;
    Ok(BurnTensor::new(match (from, float_dtype(dtype), int_dtype(dtype)) {
        (DType::Bool, Some(to), _) => Flex::bool_into_float(operand, to),
        (DType::Bool, _, Some(to)) => Flex::bool_into_int(operand, to),
        (_, Some(to), _) if from.is_float() => Flex::float_cast(operand, to),
        (_, _, Some(to)) if from.is_float() => Flex::float_into_int(operand, to),
        // Burn converts through f32, and rounds twice.
        (_, Some(to @ (FloatDType::F16 | FloatDType::BF16)), _) => {
            Flex::float_cast(Flex::int_into_float(operand, FloatDType::F64), to)
        }
        (_, Some(to), _) => Flex::int_into_float(operand, to),
        (_, _, Some(to)) => Flex::int_cast(operand, to),
        (_, None, None) => unreachable!("bool is the only dtype that is neither"),
    }))
}

fn float_dtype(dtype: DType) -> Option<FloatDType> {
    Some(match dtype {
        DType::F64 => FloatDType::F64,
        DType::F32 => FloatDType::F32,
        DType::F16 => FloatDType::F16,
        DType::BF16 => FloatDType::BF16,
        _ => return None,
    })
}

fn int_dtype(dtype: DType) -> Option<IntDType> {
    Some(match dtype {
        DType::I64 => IntDType::I64,
        DType::I32 => IntDType::I32,
        DType::U8 => IntDType::U8,
        _ => return None,
    })
}
