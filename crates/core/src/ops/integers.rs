//! What binary ops mean on integers, for backends whose engine means something else by them.

use super::BinaryOp;

impl BinaryOp {
    /// The op on integers: arithmetic wraps, a division or remainder by 0 is 0, a quotient is cut off towards 0, a remainder has the divisor's
    /// sign, and a negative power is 0 but for bases 1 and −1. Of narrower integers, cut off the result's upper bits. Nothing where the op
    /// is not defined for integers.
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
