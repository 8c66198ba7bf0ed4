//! Element-wise ops.

use polygrad_core::{BinaryOp, CompareOp, DType, Result, Scalar, UnaryOp, decompose};
use tch::{TchError, Tensor};

use crate::Torch;
use crate::error::{Named, guarded, refused, unknown};
use crate::tensor::{TorchTensor, kind, scalar};

pub(crate) fn unary(op: UnaryOp, x: &TorchTensor) -> Result<TorchTensor> {
    let (name, t) = (op.name(), x.raw());
    if !op.accepts(x.dtype()) {
        return Err(refused(name, x.dtype()));
    }
    let out = match op {
        UnaryOp::Neg => t.f_neg(),
        UnaryOp::Abs => t.f_abs(),
        UnaryOp::Sign => t.f_sign(),
        UnaryOp::Exp => t.f_exp(),
        UnaryOp::Expm1 => t.f_expm1(),
        UnaryOp::Log => t.f_log(),
        UnaryOp::Log1p => t.f_log1p(),
        UnaryOp::Sqrt => t.f_sqrt(),
        UnaryOp::Rsqrt => t.f_rsqrt(),
        UnaryOp::Reciprocal => t.f_reciprocal(),
        UnaryOp::Floor => t.f_floor(),
        UnaryOp::Ceil => t.f_ceil(),
        UnaryOp::Round => t.f_round(),
        UnaryOp::Trunc => t.f_trunc(),
        UnaryOp::Sin => t.f_sin(),
        UnaryOp::Cos => t.f_cos(),
        UnaryOp::Tan => t.f_tan(),
        UnaryOp::Tanh => t.f_tanh(),
        UnaryOp::Sigmoid => t.f_sigmoid(),
        UnaryOp::Erf => t.f_erf(),
        UnaryOp::Relu => t.f_relu(),
        UnaryOp::LogicalNot => t.f_logical_not(),
        UnaryOp::IsNan => t.f_isnan(),
        UnaryOp::IsInf => t.f_isinf(),
        UnaryOp::IsFinite => t.f_isfinite(),
        _ => return Err(unknown(name)),
    };
    x.wrap(name, out)
}

pub(crate) fn binary(op: BinaryOp, a: &TorchTensor, b: &TorchTensor) -> Result<TorchTensor> {
    let (name, x, y) = (op.name(), a.raw(), b.raw());
    if !op.accepts(a.dtype()) {
        return Err(refused(name, a.dtype()));
    }
    let out = match op {
        BinaryOp::Add => x.f_add(y),
        BinaryOp::Sub => x.f_sub(y),
        BinaryOp::Mul => x.f_mul(y),
        BinaryOp::Div if a.dtype().is_float() => x.f_div(y),
        BinaryOp::Div => return a.guard(name, || int_div(x, y)),
        BinaryOp::Remainder if a.dtype().is_float() => x.f_remainder_tensor(y),
        BinaryOp::Remainder => return a.guard(name, || int_remainder(x, y)),
        BinaryOp::Pow => x.f_pow(y),
        BinaryOp::Maximum => x.f_maximum(y),
        BinaryOp::Minimum => x.f_minimum(y),
        BinaryOp::Atan2 => x.f_atan2(y),
        BinaryOp::And => x.f_bitwise_and_tensor(y),
        BinaryOp::Or => x.f_bitwise_or_tensor(y),
        BinaryOp::Xor => x.f_bitwise_xor_tensor(y),
        _ => return Err(unknown(name)),
    };
    a.wrap(name, out)
}

/// Division of integers. LibTorch defines no division by 0, and dividing the smallest number by −1 ends the process.
fn int_div(x: &Tensor, y: &Tensor) -> std::result::Result<Tensor, TchError> {
    let (zero, minus) = (y.f_eq(0i64)?, y.f_eq(-1i64)?);
    let safe = y.f_masked_fill(&zero.f_logical_or(&minus)?, 1i64)?;
    let quotient = x.f_div_tensor_mode(&safe, "trunc")?;
    // −1 was replaced by 1, so the quotient is x itself, and must be negated.
    let quotient = quotient.f_neg()?.f_where_self(&minus, &quotient)?;
    quotient.f_masked_fill(&zero.f_expand_as(&quotient)?, 0i64)
}

/// Remainder of integers, with the divisor's sign; 0 for the divisors 0 and −1.
fn int_remainder(x: &Tensor, y: &Tensor) -> std::result::Result<Tensor, TchError> {
    let none = y.f_eq(0i64)?.f_logical_or(&y.f_eq(-1i64)?)?;
    let rest = x.f_remainder_tensor(&y.f_masked_fill(&none, 1i64)?)?;
    rest.f_masked_fill(&none.f_expand_as(&rest)?, 0i64)
}

pub(crate) fn compare(op: CompareOp, a: &TorchTensor, b: &TorchTensor) -> Result<TorchTensor> {
    let (x, y) = (a.raw(), b.raw());
    let out = match op {
        CompareOp::Eq => x.f_eq_tensor(y),
        CompareOp::Ne => x.f_ne_tensor(y),
        CompareOp::Lt => x.f_lt_tensor(y),
        CompareOp::Le => x.f_le_tensor(y),
        CompareOp::Gt => x.f_gt_tensor(y),
        CompareOp::Ge => x.f_ge_tensor(y),
        _ => return Err(unknown(op.name())),
    };
    a.wrap(op.name(), out)
}

pub(crate) fn select(condition: &TorchTensor, a: &TorchTensor, b: &TorchTensor) -> Result<TorchTensor> {
    a.wrap("where", a.raw().f_where_self(condition.raw(), b.raw()))
}

/// Whether LibTorch computes with a scalar as if it had been rounded to the tensor's dtype first.
fn takes(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

pub(crate) fn binary_scalar(op: BinaryOp, x: &TorchTensor, number: Scalar, reverse: bool) -> Result<TorchTensor> {
    let t = x.raw();
    let value = || scalar(number);
    let apply: &dyn Fn() -> std::result::Result<Tensor, TchError> = match (op, reverse) {
        _ if !takes(x.dtype()) => return decompose::binary_scalar::<Torch>(op, x, number, reverse),
        (BinaryOp::Add, _) => &|| t.f_add_scalar(value()),
        (BinaryOp::Sub, false) => &|| t.f_sub_scalar(value()),
        (BinaryOp::Sub, true) => &|| t.f_rsub_scalar(value()),
        (BinaryOp::Mul, _) => &|| t.f_mul_scalar(value()),
        (BinaryOp::Div, false) => &|| t.f_div_scalar(value()),
        (BinaryOp::Pow, false) => &|| t.f_pow_tensor_scalar(value()),
        (BinaryOp::Maximum, _) if !number.to_f64().is_nan() => &|| t.f_clamp_min(value()),
        (BinaryOp::Minimum, _) if !number.to_f64().is_nan() => &|| t.f_clamp_max(value()),
        _ => return decompose::binary_scalar::<Torch>(op, x, number, reverse),
    };
    x.guard(op.name(), apply)
}

pub(crate) fn compare_scalar(op: CompareOp, x: &TorchTensor, number: Scalar) -> Result<TorchTensor> {
    if !takes(x.dtype()) {
        return decompose::compare_scalar::<Torch>(op, x, number);
    }
    // LibTorch does not round the scalar for a comparison.
    let value = match x.dtype() {
        DType::F32 => f64::from(number.to_f64() as f32),
        _ => number.to_f64(),
    };
    let t = x.raw();
    let apply: &dyn Fn() -> std::result::Result<Tensor, TchError> = match op {
        CompareOp::Eq => &|| t.f_eq(value),
        CompareOp::Ne => &|| t.f_ne(value),
        CompareOp::Lt => &|| t.f_lt(value),
        CompareOp::Le => &|| t.f_le(value),
        CompareOp::Gt => &|| t.f_gt(value),
        CompareOp::Ge => &|| t.f_ge(value),
        _ => return Err(unknown(op.name())),
    };
    x.guard(op.name(), apply)
}

pub(crate) fn cast(x: &TorchTensor, dtype: DType) -> Result<TorchTensor> {
    let (from, op) = (x.dtype(), "to_dtype");
    if from == dtype {
        return Ok(x.clone());
    }
    let to = |x: &Tensor, dtype: DType| x.f_to_dtype(kind(dtype), false, false).named(op);
    let out = match (from.is_float(), dtype) {
        (true, DType::U8) => to(&saturated(&to(x.raw(), DType::F64)?, 0.0, 255.0)?, dtype)?,
        (true, DType::I32) => {
            let wide = to(x.raw(), DType::F64)?;
            to(&saturated(&wide, f64::from(i32::MIN), f64::from(i32::MAX))?, dtype)?
        }
        (true, DType::I64) => {
            // The largest i64 is not an f64: numbers up to the largest f64 below it are converted, and larger ones are
            // inserted afterwards.
            const BELOW: f64 = 9_223_372_036_854_774_784.0;
            let wide = to(x.raw(), DType::F64)?;
            let inside = to(&saturated(&wide, i64::MIN as f64, BELOW)?, dtype)?;
            guarded(op, || inside.f_masked_fill(&wide.f_gt(BELOW)?, i64::MAX))?
        }
        (_, DType::F16 | DType::BF16) if matches!(from, DType::F64 | DType::I64 | DType::I32) => {
            let wide = to(x.raw(), DType::F64)?;
            to(&guarded(op, || odd(&wide))?, dtype)?
        }
        _ => to(x.raw(), dtype)?,
    };
    TorchTensor::new(out, x.device())
}

/// Converts f64 to f32 with rounding to odd (inexact results are truncated and made odd), so that a second rounding
/// gives the same result as rounding once.
///
/// LibTorch converts to f16 and bf16 through f32, and thus rounds twice. Source: Boldo and Melquiond, "When double
/// rounding is odd" (2005).
fn odd(x: &Tensor) -> std::result::Result<Tensor, TchError> {
    use tch::Kind::{Double, Float, Int};
    let near = x.f_to_kind(Float)?;
    let back = near.f_to_kind(Double)?;
    let bits = near.f_view_dtype(Int)?;
    let beyond = back.f_abs()?.f_gt_tensor(&x.f_abs()?)?;
    let odd = bits.f_sub(&beyond.f_to_kind(Int)?)?.f_bitwise_or(1i64)?;
    odd.f_where_self(&back.f_ne_tensor(x)?, &bits)?.f_view_dtype(Float)
}

/// Clamps to the bounds; NaN becomes 0.
fn saturated(wide: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    let op = "to_dtype";
    let number = wide.f_nan_to_num(0.0, f64::INFINITY, f64::NEG_INFINITY).named(op)?;
    guarded(op, || number.f_clamp(low, high))
}

/// `start + i * step`: for integers in i64, which wraps, else in f64.
pub(crate) fn iota(
    len: usize,
    start: Scalar,
    step: Scalar,
    dtype: DType,
    device: crate::TorchDevice,
) -> Result<TorchTensor> {
    let real = matches!(start, Scalar::Float(_)) || matches!(step, Scalar::Float(_));
    let wide = if real { DType::F64 } else { DType::I64 };
    let number = |value: Scalar| {
        if real {
            Scalar::Float(value.to_f64())
        } else {
            Scalar::Int(value.to_i64())
        }
    };
    let out = guarded("arange", || {
        let count = Tensor::f_arange(len as i64, (kind(wide), device.into()))?;
        count
            .f_mul_scalar(scalar(number(step)))?
            .f_add_scalar(scalar(number(start)))
    })?;
    cast(&TorchTensor::new(out, device)?, dtype)
}
