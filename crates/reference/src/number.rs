//! Rounding, wrapping and summation of numbers.

use polygrad_core::{DType, Element, Scalar, bf16, dispatch_dtype, f16};

/// Rounds to the nearest number of a float dtype, ties to even.
pub(crate) fn round(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => round_to(value, 11, -14, f16::MAX.to_f64()),
        DType::BF16 => round_to(value, 8, -126, bf16::MAX.to_f64()),
        _ => value,
    }
}

/// Rounds to `digits` binary digits, fewer below `2^lowest` (subnormal numbers), and to infinity above `max`.
fn round_to(value: f64, digits: i32, lowest: i32, max: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // A subnormal f64 has the exponent field 0, which gives -1023 here. That is below `lowest`, so it need not be
    // exact.
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let unit = f64::powi(2.0, exponent.max(lowest) - (digits - 1));
    let rounded = (value / unit).round_ties_even() * unit;
    if rounded.abs() > max {
        f64::INFINITY.copysign(value)
    } else {
        rounded
    }
}

/// An integer converted to a dtype: wrapped to its width, or `!= 0` for bool.
pub(crate) fn wrap(value: i64, dtype: DType) -> i64 {
    match dtype {
        DType::Bool => i64::from(value != 0),
        DType::U8 => i64::from(value as u8),
        DType::I32 => i64::from(value as i32),
        _ => value,
    }
}

/// A scalar as an element of a float dtype.
pub(crate) fn real(scalar: Scalar, dtype: DType) -> f64 {
    match scalar {
        Scalar::Float(value) => round(value, dtype),
        exact => dispatch_dtype!(dtype, T => T::from_scalar(exact).to_f64()),
    }
}

/// A scalar as an element of an integer dtype or bool.
pub(crate) fn int(scalar: Scalar, dtype: DType) -> i64 {
    dispatch_dtype!(dtype, T => T::from_scalar(scalar).to_i64())
}

/// A compensated sum of reals, which also adds up the rounding error of each addition.
///
/// Source: Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen" (1974).
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    total: f64,
    lost: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, value: f64) {
        let total = self.total + value;
        self.lost += if self.total.abs() >= value.abs() {
            (self.total - total) + value
        } else {
            (value - total) + self.total
        };
        self.total = total;
    }

    pub(crate) fn value(self) -> f64 {
        // If the sum is infinite, `lost` is NaN, from infinity minus infinity.
        if self.total.is_finite() {
            self.total + self.lost
        } else {
            self.total
        }
    }

    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut sum = Self::default();
        for value in values {
            sum.add(value);
        }
        sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_every_16_bit_number_to_itself_and_midpoints_to_even() {
        for bits in 0..=u16::MAX {
            for (dtype, value, next) in [
                (
                    DType::F16,
                    f16::from_bits(bits).to_f64(),
                    f16::from_bits(bits.wrapping_add(1)).to_f64(),
                ),
                (
                    DType::BF16,
                    bf16::from_bits(bits).to_f64(),
                    bf16::from_bits(bits.wrapping_add(1)).to_f64(),
                ),
            ] {
                let rounded = round(value, dtype);
                assert!(
                    rounded == value || value.is_nan() && rounded.is_nan(),
                    "{value} {rounded}"
                );
                if value.is_finite() && next.is_finite() && bits & 0x7fff != 0x7fff {
                    let middle = (value + next) / 2.0;
                    let even = if bits & 1 == 0 { value } else { next };
                    assert_eq!(round(middle, dtype), even, "{dtype} between {value} and {next}");
                    let above = value + (next - value) * (0.5 + 1e-9);
                    assert_eq!(
                        round(above, dtype),
                        next,
                        "{dtype} above the middle of {value} and {next}"
                    );
                }
            }
        }
        assert_eq!(round(65519.999, DType::F16), 65504.0);
        assert_eq!(round(65520.0, DType::F16), f64::INFINITY);
        assert_eq!(round(-1e39, DType::BF16), f64::NEG_INFINITY);
        assert_eq!(round(1e-300, DType::F16), 0.0);
    }

    #[test]
    fn wraps_to_the_width() {
        assert_eq!(wrap(-1, DType::U8), 255);
        assert_eq!(wrap(1 << 31, DType::I32), i64::from(i32::MIN));
        assert_eq!(wrap(-7, DType::Bool), 1);
        assert_eq!(wrap(i64::MIN, DType::I64), i64::MIN);
    }

    #[test]
    fn sums_lose_nothing() {
        assert_eq!(Sum::of([1.0, 1e100, 1.0, -1e100]), 2.0);
        assert_eq!(Sum::of([f64::INFINITY, 1.0]), f64::INFINITY);
        assert!(Sum::of([f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert_eq!(Sum::of([]), 0.0);
    }
}
