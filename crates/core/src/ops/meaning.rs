//! Scalar definitions of the families' ops: for backends whose engine lacks an op or defines it differently, and for
//! the reference.

use super::{BinaryOp, CompareOp, UnaryOp};

impl UnaryOp {
    /// The function of real numbers; `None` for predicates.
    pub fn on_reals(self) -> Option<fn(f64) -> f64> {
        Some(match self {
            Self::Neg => |x| -x,
            Self::Abs => f64::abs,
            Self::Sign => |x| if x == 0.0 || x.is_nan() { 0.0 } else { x.signum() },
            Self::Exp => f64::exp,
            Self::Expm1 => f64::exp_m1,
            Self::Log => f64::ln,
            Self::Log1p => f64::ln_1p,
            Self::Sqrt => f64::sqrt,
            Self::Rsqrt => |x| 1.0 / x.sqrt(),
            Self::Reciprocal => |x| 1.0 / x,
            Self::Floor => f64::floor,
            Self::Ceil => f64::ceil,
            Self::Round => f64::round_ties_even,
            Self::Trunc => f64::trunc,
            Self::Sin => f64::sin,
            Self::Cos => f64::cos,
            Self::Tan => f64::tan,
            Self::Tanh => f64::tanh,
            // Uses e^x or e^-x, whichever does not overflow.
            Self::Sigmoid => |x| {
                if x < 0.0 {
                    x.exp() / (1.0 + x.exp())
                } else {
                    1.0 / (1.0 + (-x).exp())
                }
            },
            Self::Erf => libm::erf,
            // Not `max`, which would drop a NaN.
            Self::Relu => |x| if x < 0.0 { 0.0 } else { x },
            Self::LogicalNot | Self::IsNan | Self::IsInf | Self::IsFinite => return None,
        })
    }

    /// The function of integers, which wraps; `None` for predicates and for ops that convert integers to floats first.
    pub fn on_integers(self) -> Option<fn(i64) -> i64> {
        Some(match self {
            Self::Neg => i64::wrapping_neg,
            Self::Abs => i64::wrapping_abs,
            Self::Sign => i64::signum,
            Self::Floor | Self::Ceil | Self::Round | Self::Trunc => |x| x,
            Self::Relu => |x| x.max(0),
            _ => return None,
        })
    }

    /// The predicate of any number; `None` for other functions.
    pub fn predicate(self) -> Option<fn(f64) -> bool> {
        Some(match self {
            Self::LogicalNot => |x| x == 0.0,
            Self::IsNan => f64::is_nan,
            Self::IsInf => f64::is_infinite,
            Self::IsFinite => f64::is_finite,
            _ => return None,
        })
    }
}

impl CompareOp {
    /// Whether the comparison holds.
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Lt => a < b,
            Self::Le => a <= b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
        }
    }
}

impl BinaryOp {
    /// The op on real numbers; `None` if it is not defined for them, or is composed of others.
    pub fn on_reals(self) -> Option<fn(f64, f64) -> f64> {
        Some(match self {
            Self::Add => |a, b| a + b,
            Self::Sub => |a, b| a - b,
            Self::Mul => |a, b| a * b,
            Self::Div => |a, b| a / b,
            Self::Remainder => |a, b| {
                let rest = a % b;
                if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                    rest + b
                } else {
                    rest
                }
            },
            Self::Pow => f64::powf,
            Self::Maximum => |a, b| if a > b || a.is_nan() { a } else { b },
            Self::Minimum => |a, b| if a < b || a.is_nan() { a } else { b },
            Self::Atan2 => f64::atan2,
            Self::And | Self::Or | Self::Xor | Self::LogAddExp => return None,
        })
    }

    /// The op on integers: arithmetic wraps, a division or remainder by 0 is 0, a quotient is truncated towards 0, a
    /// remainder has the divisor's sign, and a negative power is 0 except for bases 1 and −1. For narrower integers the
    /// caller truncates the result. `None` if the op is not defined for integers.
    pub fn on_integers(self) -> Option<fn(i64, i64) -> i64> {
        Some(match self {
            Self::Add => i64::wrapping_add,
            Self::Sub => i64::wrapping_sub,
            Self::Mul => i64::wrapping_mul,
            Self::Div => |a, b| if b == 0 { 0 } else { a.wrapping_div(b) },
            Self::Remainder => |a, b| {
                let rest = if b == 0 { 0 } else { a.wrapping_rem(b) };
                if rest != 0 && (rest < 0) != (b < 0) {
                    rest + b
                } else {
                    rest
                }
            },
            Self::Pow => power,
            Self::Maximum => i64::max,
            Self::Minimum => i64::min,
            Self::And => |a, b| a & b,
            Self::Or => |a, b| a | b,
            Self::Xor => |a, b| a ^ b,
            _ => return None,
        })
    }
}

/// By repeated squaring.
fn power(base: i64, exponent: i64) -> i64 {
    let mut rest = match (base, exponent < 0) {
        (_, false) => exponent,
        (1 | -1, true) => exponent & 1,
        (_, true) => return 0,
    };
    let (mut product, mut square) = (1i64, base);
    while rest > 0 {
        if rest & 1 == 1 {
            product = product.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corners_are_what_they_are_said_to_be() {
        let of = |op: BinaryOp, a, b| op.on_integers().unwrap()(a, b);
        assert_eq!(of(BinaryOp::Add, i64::MAX, 1), i64::MIN);
        assert_eq!(
            [
                of(BinaryOp::Div, 7, 0),
                of(BinaryOp::Div, -7, 2),
                of(BinaryOp::Div, i64::MIN, -1)
            ],
            [0, -3, i64::MIN]
        );
        assert_eq!(
            [
                of(BinaryOp::Remainder, -7, 2),
                of(BinaryOp::Remainder, 7, -2),
                of(BinaryOp::Remainder, 7, 0)
            ],
            [1, -1, 0]
        );
        assert_eq!(
            [
                of(BinaryOp::Pow, 2, -1),
                of(BinaryOp::Pow, -1, -3),
                of(BinaryOp::Pow, 3, 5)
            ],
            [0, -1, 243]
        );
        assert!(BinaryOp::Atan2.on_integers().is_none());
    }
}
