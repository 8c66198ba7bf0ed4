//! Element-wise ops.
//!
//! Floats use Burn's ops, or the kernels behind them with our own function if Burn lacks it. Integers always use our
//! own functions: Burn's overflow, or divide by zero, with a panic in debug builds.

use burn_backend::ops::FloatTensorOps;
use burn_flex::ops::binary::{binary_op, int_binary_op, int_scalar_op, scalar_op};
use burn_flex::ops::unary::{float_predicate, unary_op};
use burn_flex::{Flex, FlexTensor};
use burn_std::BoolDType;
use polygrad_core::{BinaryOp, DType, Result, Scalar, Shape, UnaryOp, dispatch_dtype};

use crate::flex::support::{refused, unknown};
use crate::flex::tensor::{BOOL, BurnTensor, ensure_room};

/// How Burn's comparisons store their results.
pub(crate) const NATIVE: BoolDType = BoolDType::Native;

pub(crate) fn unary(op: UnaryOp, x: &BurnTensor) -> Result<BurnTensor> {
    let dtype = x.dtype();
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype));
    }
    ensure_room(&x.shape(), dtype)?;
    if op.is_predicate() {
        return predicate(op, x);
    }
    if !dtype.is_float() {
        return int_unary(op, x);
    }
    let x = x.operand()?;
    Ok(BurnTensor::new(match op {
        UnaryOp::Neg => Flex::float_neg(x),
        UnaryOp::Abs => Flex::float_abs(x),
        UnaryOp::Sign => Flex::float_sign(x),
        UnaryOp::Exp => Flex::float_exp(x),
        UnaryOp::Expm1 => unary_op(x, f32::exp_m1, f64::exp_m1),
        UnaryOp::Log => Flex::float_log(x),
        UnaryOp::Log1p => Flex::float_log1p(x),
        UnaryOp::Sqrt => Flex::float_sqrt(x),
        UnaryOp::Rsqrt => unary_op(x, |x| 1.0 / x.sqrt(), |x| 1.0 / x.sqrt()),
        UnaryOp::Reciprocal => Flex::float_recip(x),
        UnaryOp::Floor => Flex::float_floor(x),
        UnaryOp::Ceil => Flex::float_ceil(x),
        UnaryOp::Round => Flex::float_round(x),
        UnaryOp::Trunc => Flex::float_trunc(x),
        UnaryOp::Sin => Flex::float_sin(x),
        UnaryOp::Cos => Flex::float_cos(x),
        UnaryOp::Tan => Flex::float_tan(x),
        UnaryOp::Tanh => Flex::float_tanh(x),
        UnaryOp::Sigmoid => crate::flex::activation::sigmoid(x),
        UnaryOp::Erf => Flex::float_erf(x),
        UnaryOp::Relu => crate::flex::activation::relu(x),
        _ => return Err(unknown(op.name())),
    }))
}

fn predicate(op: UnaryOp, x: &BurnTensor) -> Result<BurnTensor> {
    let float = x.dtype().is_float();
    Ok(BurnTensor::new(match op {
        UnaryOp::LogicalNot => {
            return crate::flex::compare::compare_scalar(polygrad_core::CompareOp::Eq, x, Scalar::Int(0));
        }
        UnaryOp::IsNan if float => Flex::float_is_nan(x.operand()?, NATIVE),
        UnaryOp::IsInf if float => Flex::float_is_inf(x.operand()?, NATIVE),
        UnaryOp::IsFinite if float => float_predicate(x.operand()?, NATIVE, f32::is_finite, f64::is_finite),
        UnaryOp::IsNan | UnaryOp::IsInf => return BurnTensor::full(x.shape(), Scalar::Bool(false), DType::Bool),
        UnaryOp::IsFinite => return BurnTensor::full(x.shape(), Scalar::Bool(true), DType::Bool),
        _ => return Err(unknown(op.name())),
    }))
}

fn int_unary(op: UnaryOp, x: &BurnTensor) -> Result<BurnTensor> {
    if matches!(op, UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc) {
        return Ok(x.clone());
    }
    let f = op.on_integers().ok_or_else(|| unknown(op.name()))?;
    Ok(BurnTensor::new(int_scalar_op(x.operand()?, 0, move |x, _| f(x))))
}

pub(crate) fn binary(op: BinaryOp, a: &BurnTensor, b: &BurnTensor) -> Result<BurnTensor> {
    ensure_room(&a.shape().broadcast(&b.shape())?, a.dtype())?;
    combine(op, a.operand()?, b.operand()?, a.dtype())
}

/// [`binary`] on tensors that may be overwritten if they are not shared.
pub(crate) fn combine(op: BinaryOp, a: FlexTensor, b: FlexTensor, dtype: DType) -> Result<BurnTensor> {
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype));
    }
    Ok(BurnTensor::new(match (dtype, op) {
        (DType::Bool, _) => return bool_binary(op, &a, &b),
        (_, BinaryOp::Add) if dtype.is_float() => Flex::float_add(a, b),
        (_, BinaryOp::Sub) if dtype.is_float() => Flex::float_sub(a, b),
        (_, BinaryOp::Mul) if dtype.is_float() => Flex::float_mul(a, b),
        (_, BinaryOp::Div) if dtype.is_float() => Flex::float_div(a, b),
        (_, BinaryOp::Remainder) if dtype.is_float() => Flex::float_remainder(a, b),
        (_, BinaryOp::Pow) if dtype.is_float() => Flex::float_powf(a, b),
        (_, BinaryOp::Atan2) => Flex::float_atan2(a, b),
        (_, BinaryOp::Maximum) if dtype.is_float() => binary_op(
            a,
            b,
            |a, b| if a > b || a.is_nan() { a } else { b },
            |a, b| if a > b || a.is_nan() { a } else { b },
            None,
        ),
        (_, BinaryOp::Minimum) if dtype.is_float() => binary_op(
            a,
            b,
            |a, b| if a < b || a.is_nan() { a } else { b },
            |a, b| if a < b || a.is_nan() { a } else { b },
            None,
        ),
        // Separate calls instead of a table of functions, so that each is compiled into a loop of its own.
        (_, BinaryOp::Add) => int_binary_op(a, b, i64::wrapping_add),
        (_, BinaryOp::Sub) => int_binary_op(a, b, i64::wrapping_sub),
        (_, BinaryOp::Mul) => int_binary_op(a, b, i64::wrapping_mul),
        _ => {
            let f = op.on_integers().ok_or_else(|| unknown(op.name()))?;
            int_binary_op(a, b, f)
        }
    }))
}

/// Bools are computed as bytes of 0 and 1.
fn bool_binary(op: BinaryOp, a: &FlexTensor, b: &FlexTensor) -> Result<BurnTensor> {
    let bytes = |x: &FlexTensor| FlexTensor::from_arc(x.data_arc(), x.layout().clone(), burn_std::DType::U8);
    let f: fn(i64, i64) -> i64 = match op {
        BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => |a, b| a | b,
        BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And => |a, b| a & b,
        BinaryOp::Xor => |a, b| a ^ b,
        _ => return Err(unknown(op.name())),
    };
    let out = int_binary_op(bytes(a), bytes(b), f);
    Ok(BurnTensor::new(FlexTensor::from_arc(
        out.data_arc(),
        out.layout().clone(),
        BOOL,
    )))
}

pub(crate) fn binary_scalar(op: BinaryOp, x: &BurnTensor, scalar: Scalar, reverse: bool) -> Result<BurnTensor> {
    let dtype = x.dtype();
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype));
    }
    if dtype == DType::Bool {
        let scalar = BurnTensor::full(Shape::SCALAR, scalar, dtype)?;
        return if reverse {
            binary(op, &scalar, x)
        } else {
            binary(op, x, &scalar)
        };
    }
    ensure_room(&x.shape(), dtype)?;
    let (operand, scalar) = (x.operand()?, rounded(scalar, dtype));
    if !dtype.is_float() {
        let f = op.on_integers().ok_or_else(|| unknown(op.name()))?;
        let scalar = scalar.to_i64();
        return Ok(BurnTensor::new(if reverse {
            int_scalar_op(operand, scalar, move |x, s| f(s, x))
        } else {
            int_scalar_op(operand, scalar, f)
        }));
    }
    let s = scalar.to_f64();
    Ok(BurnTensor::new(match (op, reverse) {
        (BinaryOp::Add, _) => Flex::float_add_scalar(operand, s.into()),
        (BinaryOp::Sub, false) => Flex::float_sub_scalar(operand, s.into()),
        (BinaryOp::Sub, true) => scalar_op(operand, s, |x, s| s - x, |x, s| s - x),
        (BinaryOp::Mul, _) => Flex::float_mul_scalar(operand, s.into()),
        (BinaryOp::Div, false) => Flex::float_div_scalar(operand, s.into()),
        (BinaryOp::Div, true) => scalar_op(operand, s, |x, s| s / x, |x, s| s / x),
        // The square in backward passes, since powers are expensive.
        (BinaryOp::Pow, false) if s == 2.0 => scalar_op(operand, s, |x, _| x * x, |x, _| x * x),
        (BinaryOp::Pow, false) => scalar_op(operand, s, f32::powf, f64::powf),
        _ => {
            let scalar = BurnTensor::full(Shape::SCALAR, scalar, dtype)?;
            return if reverse {
                binary(op, &scalar, x)
            } else {
                binary(op, x, &scalar)
            };
        }
    }))
}

/// A number as a tensor of a dtype would store it, so that Burn never converts a number out of range or with too many
/// digits.
pub(crate) fn rounded(scalar: Scalar, dtype: DType) -> Scalar {
    dispatch_dtype!(dtype, T => polygrad_core::Element::to_scalar(<T as polygrad_core::Element>::from_scalar(scalar)))
}
