//! Ops that compute each element from those at its place.

use polygrad_core::{BinaryOp, CompareOp, DType, Error, Result, Shape, UnaryOp};

use crate::movement::expand;
use crate::support::{self, Rule};
use crate::tensor::{ReferenceTensor, Values, collect};

type UnaryRule = Rule<fn(f64) -> f64, fn(i64) -> i64>;
type BinaryRule = Rule<fn(f64, f64) -> f64, fn(i64, i64) -> i64>;

pub(crate) fn unary(op: UnaryOp, x: &ReferenceTensor) -> Result<ReferenceTensor> {
    let (shape, dtype) = (*x.shape(), x.dtype());
    let count = shape.numel();
    if op.is_predicate() {
        let values = match x.values() {
            Values::Real(x) => collect(count, |i| real_predicate(op, x[i]).map(i64::from))?,
            Values::Int(x) => collect(count, |i| int_predicate(op, x[i]).map(i64::from))?,
        };
        return Ok(ReferenceTensor::int(shape, DType::Bool, values));
    }
    match (unary_rule(op, dtype)?, x.values()) {
        (Rule::Real(f), Values::Real(x)) => Ok(ReferenceTensor::real(shape, dtype, collect(count, |i| Ok(f(x[i])))?)),
        (Rule::Int(f), Values::Int(x)) => Ok(ReferenceTensor::int(shape, dtype, collect(count, |i| Ok(f(x[i])))?)),
        _ => Err(support::refused(op.name(), dtype)),
    }
}

fn unary_rule(op: UnaryOp, dtype: DType) -> Result<UnaryRule> {
    if dtype.is_float() {
        return real_unary(op)
            .map(Rule::Real)
            .ok_or_else(|| support::unknown(op.name()));
    }
    match int_unary(op) {
        Some(f) if dtype != DType::Bool => Ok(Rule::Int(f)),
        _ => Err(support::refused(op.name(), dtype)),
    }
}

fn real_unary(op: UnaryOp) -> Option<fn(f64) -> f64> {
    Some(match op {
        UnaryOp::Neg => |x| -x,
        UnaryOp::Abs => f64::abs,
        UnaryOp::Sign => |x| if x == 0.0 || x.is_nan() { 0.0 } else { x.signum() },
        UnaryOp::Exp => f64::exp,
        UnaryOp::Expm1 => f64::exp_m1,
        UnaryOp::Log => f64::ln,
        UnaryOp::Log1p => f64::ln_1p,
        UnaryOp::Sqrt => f64::sqrt,
        UnaryOp::Rsqrt => |x| 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => |x| 1.0 / x,
        UnaryOp::Floor => f64::floor,
        UnaryOp::Ceil => f64::ceil,
        UnaryOp::Round => f64::round_ties_even,
        UnaryOp::Trunc => f64::trunc,
        UnaryOp::Sin => f64::sin,
        UnaryOp::Cos => f64::cos,
        UnaryOp::Tan => f64::tan,
        UnaryOp::Tanh => f64::tanh,
        UnaryOp::Sigmoid => sigmoid,
        UnaryOp::Erf => libm::erf,
        // Not `max`, which would drop a NaN.
        UnaryOp::Relu => |x| if x < 0.0 { 0.0 } else { x },
        _ => return None,
    })
}

fn int_unary(op: UnaryOp) -> Option<fn(i64) -> i64> {
    Some(match op {
        UnaryOp::Neg => i64::wrapping_neg,
        UnaryOp::Abs => i64::wrapping_abs,
        UnaryOp::Sign => i64::signum,
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => |x| x,
        UnaryOp::Relu => |x| x.max(0),
        _ => return None,
    })
}

/// `1 / (1 + e^-x)`, written so that `e^-x` cannot overflow.
fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        x.exp() / (1.0 + x.exp())
    }
}

fn real_predicate(op: UnaryOp, x: f64) -> Result<bool> {
    Ok(match op {
        UnaryOp::LogicalNot => x == 0.0,
        UnaryOp::IsNan => x.is_nan(),
        UnaryOp::IsInf => x.is_infinite(),
        UnaryOp::IsFinite => x.is_finite(),
        _ => return Err(support::unknown(op.name())),
    })
}

fn int_predicate(op: UnaryOp, x: i64) -> Result<bool> {
    Ok(match op {
        UnaryOp::LogicalNot => x == 0,
        UnaryOp::IsNan | UnaryOp::IsInf => false,
        UnaryOp::IsFinite => true,
        _ => return Err(support::unknown(op.name())),
    })
}

pub(crate) fn binary(op: BinaryOp, a: &ReferenceTensor, b: &ReferenceTensor) -> Result<ReferenceTensor> {
    let (a, b, shape) = broadcast(op.name(), a, b)?;
    let (dtype, count) = (a.dtype(), shape.numel());
    match (binary_rule(op, dtype)?, a.values(), b.values()) {
        (Rule::Real(f), Values::Real(a), Values::Real(b)) => Ok(ReferenceTensor::real(
            shape,
            dtype,
            collect(count, |i| Ok(f(a[i], b[i])))?,
        )),
        (Rule::Int(f), Values::Int(a), Values::Int(b)) => Ok(ReferenceTensor::int(
            shape,
            dtype,
            collect(count, |i| Ok(f(a[i], b[i])))?,
        )),
        _ => Err(support::refused(op.name(), dtype)),
    }
}

fn binary_rule(op: BinaryOp, dtype: DType) -> Result<BinaryRule> {
    let rule = match dtype {
        DType::Bool => bool_binary(op).map(Rule::Int),
        dtype if dtype.is_float() => real_binary(op).map(Rule::Real),
        _ => int_binary(op).map(Rule::Int),
    };
    rule.ok_or_else(|| support::refused(op.name(), dtype))
}

fn real_binary(op: BinaryOp) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        BinaryOp::Add => |a, b| a + b,
        BinaryOp::Sub => |a, b| a - b,
        BinaryOp::Mul => |a, b| a * b,
        BinaryOp::Div => |a, b| a / b,
        BinaryOp::Remainder => |a, b| {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                rest + b
            } else {
                rest
            }
        },
        BinaryOp::Pow => f64::powf,
        BinaryOp::Maximum => |a, b| if a > b || a.is_nan() { a } else { b },
        BinaryOp::Minimum => |a, b| if a < b || a.is_nan() { a } else { b },
        BinaryOp::Atan2 => f64::atan2,
        _ => return None,
    })
}

fn int_binary(op: BinaryOp) -> Option<fn(i64, i64) -> i64> {
    Some(match op {
        BinaryOp::Add => i64::wrapping_add,
        BinaryOp::Sub => i64::wrapping_sub,
        BinaryOp::Mul => i64::wrapping_mul,
        BinaryOp::Div => |a, b| if b == 0 { 0 } else { a.wrapping_div(b) },
        BinaryOp::Remainder => |a, b| {
            let rest = if b == 0 { 0 } else { a.wrapping_rem(b) };
            if rest != 0 && (rest < 0) != (b < 0) {
                rest + b
            } else {
                rest
            }
        },
        BinaryOp::Pow => int_pow,
        BinaryOp::Maximum => i64::max,
        BinaryOp::Minimum => i64::min,
        BinaryOp::And => |a, b| a & b,
        BinaryOp::Or => |a, b| a | b,
        BinaryOp::Xor => |a, b| a ^ b,
        _ => return None,
    })
}

fn bool_binary(op: BinaryOp) -> Option<fn(i64, i64) -> i64> {
    Some(match op {
        BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => |a, b| a | b,
        BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And => |a, b| a & b,
        BinaryOp::Xor => |a, b| a ^ b,
        _ => return None,
    })
}

/// By repeated squaring, wrapping. A negative power is 0, but for bases 1 and −1.
fn int_pow(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

pub(crate) fn compare(op: CompareOp, a: &ReferenceTensor, b: &ReferenceTensor) -> Result<ReferenceTensor> {
    let (a, b, shape) = broadcast(op.name(), a, b)?;
    let values = match (a.values(), b.values()) {
        (Values::Real(a), Values::Real(b)) => collect(shape.numel(), |i| holds(op, a[i], b[i]))?,
        (Values::Int(a), Values::Int(b)) => collect(shape.numel(), |i| holds(op, a[i], b[i]))?,
        _ => return Err(support::refused(op.name(), b.dtype())),
    };
    Ok(ReferenceTensor::int(shape, DType::Bool, values))
}

fn holds<T: PartialOrd>(op: CompareOp, a: T, b: T) -> Result<i64> {
    Ok(i64::from(match op {
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
        CompareOp::Gt => a > b,
        CompareOp::Ge => a >= b,
        _ => return Err(support::unknown(op.name())),
    }))
}

pub(crate) fn select(condition: &ReferenceTensor, a: &ReferenceTensor, b: &ReferenceTensor) -> Result<ReferenceTensor> {
    support::expect("where", condition, DType::Bool)?;
    let (a, b, shape) = broadcast("where", a, b)?;
    let shape = shape.broadcast(condition.shape())?;
    let (condition, a, b) = (expand(condition, shape)?, expand(&a, shape)?, expand(&b, shape)?);
    let Values::Int(condition) = condition.values() else {
        return Err(support::refused("where", DType::Bool));
    };
    let count = shape.numel();
    match (a.values(), b.values()) {
        (Values::Real(x), Values::Real(y)) => {
            let values = collect(count, |i| Ok(if condition[i] != 0 { x[i] } else { y[i] }))?;
            Ok(ReferenceTensor::real(shape, a.dtype(), values))
        }
        (Values::Int(x), Values::Int(y)) => {
            let values = collect(count, |i| Ok(if condition[i] != 0 { x[i] } else { y[i] }))?;
            Ok(ReferenceTensor::int(shape, a.dtype(), values))
        }
        _ => Err(support::refused("where", b.dtype())),
    }
}

pub(crate) fn cast(x: &ReferenceTensor, dtype: DType) -> Result<ReferenceTensor> {
    ReferenceTensor::from_scalars(*x.shape(), dtype, |i| match x.values() {
        Values::Real(x) => x[i].into(),
        Values::Int(x) => x[i].into(),
    })
}

/// Two tensors of one dtype, each brought to the shape to which both broadcast.
fn broadcast(
    op: &'static str,
    a: &ReferenceTensor,
    b: &ReferenceTensor,
) -> Result<(ReferenceTensor, ReferenceTensor, Shape)> {
    let operands = || [(*a.shape(), a.dtype()), (*b.shape(), b.dtype())];
    if a.dtype() != b.dtype() {
        return Err(Error::dtype("operands of different dtypes")
            .with_op(op)
            .with_operands(operands()));
    }
    let shape = a
        .shape()
        .broadcast(b.shape())
        .map_err(|e| e.with_op(op).with_operands(operands()))?;
    Ok((expand(a, shape)?, expand(b, shape)?, shape))
}
