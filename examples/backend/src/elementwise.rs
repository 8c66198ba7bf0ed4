//! Ops that compute each element from the operands' elements at the same position.
//!
//! Floats are computed in f64 and rounded once, which for f32 gives the nearest number except in rare ties.

use polygrad::backend::{BinaryOp, CompareOp, DType, Element, Result, UnaryOp, collect};

use crate::movement::expand;
use crate::support::{refused, typed, unknown};
use crate::tensor::ToyTensor;

pub(crate) fn unary(op: UnaryOp, x: &ToyTensor) -> Result<ToyTensor> {
    let (name, dtype) = (op.name(), x.dtype());
    match (predicate(op), real(op), int(op)) {
        _ if !op.accepts(dtype) => Err(refused(name, dtype)),
        (Some(f), ..) => typed!(name, dtype, [f32 f64 i64 bool], T => map(x, |x: T| f(x.to_f64()))),
        (.., Some(f)) if dtype == DType::I64 => map(x, f),
        (_, Some(f), _) => typed!(name, dtype, [f32 f64], T => map(x, |x: T| T::from_f64(f(x.to_f64())))),
        _ => Err(unknown(name)),
    }
}

fn map<T: Element, R: Element>(x: &ToyTensor, f: impl Fn(T) -> R) -> Result<ToyTensor> {
    let values = collect(x.values::<T>()?.iter().map(|&x| f(x)))?;
    Ok(ToyTensor::new(*x.shape(), values))
}

fn predicate(op: UnaryOp) -> Option<fn(f64) -> bool> {
    Some(match op {
        UnaryOp::LogicalNot => |x| x == 0.0,
        UnaryOp::IsNan => f64::is_nan,
        UnaryOp::IsInf => f64::is_infinite,
        UnaryOp::IsFinite => f64::is_finite,
        _ => return None,
    })
}

fn real(op: UnaryOp) -> Option<fn(f64) -> f64> {
    Some(match op {
        UnaryOp::Neg => |x| -x,
        UnaryOp::Abs => f64::abs,
        UnaryOp::Sign => |x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
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
        // Avoids overflow by using whichever of e^x and e^-x is below 1.
        UnaryOp::Sigmoid => |x| {
            if x < 0.0 {
                x.exp() / (1.0 + x.exp())
            } else {
                1.0 / (1.0 + (-x).exp())
            }
        },
        UnaryOp::Erf => libm::erf,
        // `x.max(0.0)` would turn NaN into 0.
        UnaryOp::Relu => |x| if x < 0.0 { 0.0 } else { x },
        _ => return None,
    })
}

fn int(op: UnaryOp) -> Option<fn(i64) -> i64> {
    Some(match op {
        UnaryOp::Neg => i64::wrapping_neg,
        UnaryOp::Abs => i64::wrapping_abs,
        UnaryOp::Sign => i64::signum,
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => |x| x,
        UnaryOp::Relu => |x| x.max(0),
        _ => return None,
    })
}

pub(crate) fn binary(op: BinaryOp, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
    let (name, dtype) = (op.name(), a.dtype());
    match (binary_real(op), binary_int(op)) {
        _ if !op.accepts(dtype) => Err(refused(name, dtype)),
        (Some(f), _) if dtype.is_float() => {
            typed!(name, dtype, [f32 f64], T => zip(a, b, |a: T, b: T| T::from_f64(f(a.to_f64(), b.to_f64()))))
        }
        // Bool is computed as 0 and 1, and any number except 0 is true: `+` is or, `*` is and.
        (_, Some(f)) => {
            typed!(name, dtype, [i64 bool], T => zip(a, b, |a: T, b: T| T::from_i64(f(a.to_i64(), b.to_i64()))))
        }
        _ => Err(unknown(name)),
    }
}

fn zip<T: Element, R: Element>(a: &ToyTensor, b: &ToyTensor, f: impl Fn(T, T) -> R) -> Result<ToyTensor> {
    let shape = a.shape().broadcast(b.shape())?;
    let (a, b) = (expand(a, shape), expand(b, shape));
    let (a, b) = (a.values::<T>()?, b.values::<T>()?);
    Ok(ToyTensor::new(
        shape,
        collect(a.iter().zip(b.iter()).map(|(&a, &b)| f(a, b)))?,
    ))
}

fn binary_real(op: BinaryOp) -> Option<fn(f64, f64) -> f64> {
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

fn binary_int(op: BinaryOp) -> Option<fn(i64, i64) -> i64> {
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

/// By repeated squaring, wrapping. A negative power is 0, except for bases 1 and −1.
fn int_pow(base: i64, exponent: i64) -> i64 {
    let mut rest = match (base, exponent < 0) {
        (_, false) => exponent,
        (1 | -1, true) => exponent & 1,
        (_, true) => return 0,
    };
    let (mut power, mut square) = (1i64, base);
    while rest > 0 {
        if rest & 1 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    power
}

pub(crate) fn compare(op: CompareOp, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
    fn with<T: Element>(op: CompareOp, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
        match op {
            CompareOp::Eq => zip(a, b, |a: T, b: T| a == b),
            CompareOp::Ne => zip(a, b, |a: T, b: T| a != b),
            CompareOp::Lt => zip(a, b, |a: T, b: T| a < b),
            CompareOp::Le => zip(a, b, |a: T, b: T| a <= b),
            CompareOp::Gt => zip(a, b, |a: T, b: T| a > b),
            CompareOp::Ge => zip(a, b, |a: T, b: T| a >= b),
            _ => Err(unknown(op.name())),
        }
    }
    typed!(op.name(), a.dtype(), [f32 f64 i64 bool], T => with::<T>(op, a, b))
}

pub(crate) fn select(condition: &ToyTensor, a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
    let shape = a.shape().broadcast(b.shape())?.broadcast(condition.shape())?;
    let (condition, a, b) = (expand(condition, shape), expand(a, shape), expand(b, shape));
    let condition = condition.values::<bool>()?;
    typed!("where", a.dtype(), [f32 f64 i64 bool], T => {
        let (a, b) = (a.values::<T>()?, b.values::<T>()?);
        let pairs = a.iter().zip(b.iter());
        let chosen = condition.iter().zip(pairs).map(|(&condition, (&a, &b))| if condition { a } else { b });
        Ok(ToyTensor::new(shape, collect(chosen)?))
    })
}

pub(crate) fn cast(x: &ToyTensor, dtype: DType) -> Result<ToyTensor> {
    typed!("to_dtype", x.dtype(), [f32 f64 i64 bool], From => {
        typed!("to_dtype", dtype, [f32 f64 i64 bool], To => map(x, |x: From| To::from_scalar(x.to_scalar())))
    })
}
