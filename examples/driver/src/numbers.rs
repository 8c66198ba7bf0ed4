//! Ops on single numbers.

use polygrad_core::{BinaryOp, CompareOp, DType, Element, Error, ReduceOp, Result, Scalar, UnaryOp, dispatch_dtype};

/// Rounds a number to a dtype.
pub(crate) fn round(x: Scalar, dtype: DType) -> Scalar {
    dispatch_dtype!(dtype, T => <T as Element>::from_scalar(x).to_scalar())
}

pub(crate) fn as_real(x: Scalar) -> f64 {
    x.to_f64()
}

fn unknown<T>(name: &str) -> Result<T> {
    Err(Error::unsupported(format!("the toy knows no {name}")))
}

pub(crate) fn unary(op: UnaryOp, x: Scalar) -> Result<Scalar> {
    use UnaryOp::*;
    let real = as_real(x);
    Ok(match (op, x) {
        (LogicalNot, _) => Scalar::Bool(real == 0.0),
        (IsNan, _) => Scalar::Bool(real.is_nan()),
        (IsInf, _) => Scalar::Bool(real.is_infinite()),
        (IsFinite, _) => Scalar::Bool(real.is_finite()),
        (Neg, Scalar::Int(x)) => Scalar::Int(x.wrapping_neg()),
        (Abs, Scalar::Int(x)) => Scalar::Int(x.wrapping_abs()),
        (Sign, Scalar::Int(x)) => Scalar::Int(x.signum()),
        (Relu, Scalar::Int(x)) => Scalar::Int(x.max(0)),
        (_, Scalar::Int(x)) => Scalar::Int(x),
        _ => Scalar::Float(match op {
            Neg => -real,
            Abs => real.abs(),
            Sign => {
                if real == 0.0 || real.is_nan() {
                    0.0
                } else {
                    real.signum()
                }
            }
            Exp => real.exp(),
            Expm1 => real.exp_m1(),
            Log => real.ln(),
            Log1p => real.ln_1p(),
            Sqrt => real.sqrt(),
            Rsqrt => 1.0 / real.sqrt(),
            Reciprocal => 1.0 / real,
            Floor => real.floor(),
            Ceil => real.ceil(),
            Round => real.round_ties_even(),
            Trunc => real.trunc(),
            Sin => real.sin(),
            Cos => real.cos(),
            Tan => real.tan(),
            Tanh => real.tanh(),
            Sigmoid => 1.0 / (1.0 + (-real).exp()),
            Erf => libm::erf(real),
            Relu => {
                if real < 0.0 {
                    0.0
                } else {
                    real
                }
            }
            _ => return unknown(op.name()),
        }),
    })
}

pub(crate) fn binary(op: BinaryOp, a: Scalar, b: Scalar) -> Result<Scalar> {
    use BinaryOp::*;
    Ok(match (a, b) {
        (Scalar::Bool(a), Scalar::Bool(b)) => Scalar::Bool(match op {
            Add | Maximum | Or => a | b,
            Mul | Minimum | And => a & b,
            Xor => a ^ b,
            _ => return unknown(op.name()),
        }),
        (Scalar::Int(a), Scalar::Int(b)) => Scalar::Int(match op {
            Add => a.wrapping_add(b),
            Sub => a.wrapping_sub(b),
            Mul => a.wrapping_mul(b),
            Div => {
                if b == 0 {
                    0
                } else {
                    a.wrapping_div(b)
                }
            }
            Remainder => match if b == 0 { 0 } else { a.wrapping_rem(b) } {
                0 => 0,
                rest if (rest < 0) != (b < 0) => rest + b,
                rest => rest,
            },
            Pow => power(a, b),
            Maximum => a.max(b),
            Minimum => a.min(b),
            And => a & b,
            Or => a | b,
            Xor => a ^ b,
            _ => return unknown(op.name()),
        }),
        _ => {
            let (a, b) = (as_real(a), as_real(b));
            Scalar::Float(match op {
                Add => a + b,
                Sub => a - b,
                Mul => a * b,
                Div => a / b,
                Remainder => match a % b {
                    rest if rest != 0.0 && (rest < 0.0) != (b < 0.0) => rest + b,
                    rest => rest,
                },
                Pow => a.powf(b),
                // NaN in either operand is propagated.
                Maximum => {
                    if a > b || a.is_nan() {
                        a
                    } else {
                        b
                    }
                }
                Minimum => {
                    if a < b || a.is_nan() {
                        a
                    } else {
                        b
                    }
                }
                Atan2 => a.atan2(b),
                _ => return unknown(op.name()),
            })
        }
    })
}

/// By repeated squaring. A negative power is 0, except for bases 1 and −1.
fn power(base: i64, exponent: i64) -> i64 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, _) => 1 - 2 * (exponent & 1),
        (_, ..0) => 0,
        (_, 0) => 1,
        _ => power(base.wrapping_mul(base), exponent / 2).wrapping_mul(if exponent & 1 == 1 { base } else { 1 }),
    }
}

pub(crate) fn compare(op: CompareOp, a: Scalar, b: Scalar) -> Result<Scalar> {
    fn holds<T: PartialOrd>(op: CompareOp, a: T, b: T) -> Result<bool> {
        Ok(match op {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
            _ => return unknown(op.name()),
        })
    }
    // Not every integer is exact as a float.
    Ok(Scalar::Bool(match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) => holds(op, a, b)?,
        _ => holds(op, as_real(a), as_real(b))?,
    }))
}

/// A fold in f64 or i64, from the op's identity.
pub(crate) fn reduce(op: ReduceOp, dtype: DType, values: impl Iterator<Item = Scalar>) -> Result<Scalar> {
    let (step, start) = match op {
        ReduceOp::Sum | ReduceOp::Mean => (BinaryOp::Add, Scalar::Int(0)),
        ReduceOp::Prod => (BinaryOp::Mul, Scalar::Int(1)),
        ReduceOp::Max if dtype.is_float() => (BinaryOp::Maximum, Scalar::Float(f64::NEG_INFINITY)),
        ReduceOp::Min if dtype.is_float() => (BinaryOp::Minimum, Scalar::Float(f64::INFINITY)),
        ReduceOp::Max => (BinaryOp::Maximum, Scalar::Int(i64::MIN)),
        ReduceOp::Min => (BinaryOp::Minimum, Scalar::Int(i64::MAX)),
        ReduceOp::Any => (BinaryOp::Or, Scalar::Bool(false)),
        ReduceOp::All => (BinaryOp::And, Scalar::Bool(true)),
        _ => return unknown(op.name()),
    };
    if !op.accepts(dtype) {
        return Err(Error::dtype(format!("{} is not defined for {dtype}", op.name())));
    }
    let mut total = match (dtype.is_float(), dtype, start) {
        (true, ..) => Scalar::Float(as_real(start)),
        (_, DType::Bool, Scalar::Int(x)) => Scalar::Bool(x > 0),
        _ => start,
    };
    let mut count = 0usize;
    for value in values {
        total = binary(step, total, value)?;
        count += 1;
    }
    Ok(match op {
        ReduceOp::Mean => Scalar::Float(as_real(total) / count as f64),
        _ => total,
    })
}
