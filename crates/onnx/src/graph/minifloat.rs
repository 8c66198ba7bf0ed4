//! Floats of at most 8 bits: each is exactly representable as an f32.

use super::ElementType;

/// How the bits of a small float are laid out.
struct Layout {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    /// What the largest exponent stands for.
    special: Special,
}

/// How infinity and NaN are written.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// As in IEEE 754.
    Ieee,
    /// No infinity; NaN is all ones.
    AllOnes,
    /// No infinity and no negative zero, whose bits are NaN.
    NegativeZero,
    /// Neither.
    None,
}

fn layout(element: ElementType) -> Option<Layout> {
    let (exponent, mantissa, bias, special) = match element {
        ElementType::F8E4M3Fn => (4, 3, 7, Special::AllOnes),
        ElementType::F8E4M3Fnuz => (4, 3, 8, Special::NegativeZero),
        ElementType::F8E5M2 => (5, 2, 15, Special::Ieee),
        ElementType::F8E5M2Fnuz => (5, 2, 16, Special::NegativeZero),
        ElementType::F4E2M1 => (2, 1, 1, Special::None),
        ElementType::F6E2M3 => (2, 3, 1, Special::None),
        ElementType::F6E3M2 => (3, 2, 3, Special::None),
        _ => return None,
    };
    Some(Layout {
        exponent,
        mantissa,
        bias,
        special,
    })
}

/// The value of bits.
pub(crate) fn decode(element: ElementType, bits: u8) -> f32 {
    if element == ElementType::F8E8M0 {
        // Only powers of two.
        return if bits == 255 {
            f32::NAN
        } else {
            2f64.powi(i32::from(bits) - 127) as f32
        };
    }
    let Some(layout) = layout(element) else { return f32::NAN };
    let width = layout.exponent + layout.mantissa;
    let bits = u32::from(bits);
    let (sign, size) = (bits >> width & 1, bits & ((1 << width) - 1));
    let (exponent, mantissa) = (size >> layout.mantissa, size & ((1 << layout.mantissa) - 1));
    let highest = exponent == (1 << layout.exponent) - 1;
    let value = match layout.special {
        Special::Ieee if highest && mantissa == 0 => f64::INFINITY,
        Special::Ieee if highest => f64::NAN,
        Special::AllOnes if size == (1 << width) - 1 => f64::NAN,
        Special::NegativeZero if sign == 1 && size == 0 => f64::NAN,
        _ => {
            let scale = 2f64.powi(exponent.max(1) as i32 - layout.bias - layout.mantissa as i32);
            let hidden = if exponent == 0 { 0 } else { 1 << layout.mantissa };
            f64::from(mantissa + hidden) * scale
        }
    };
    (if sign == 1 { -value } else { value }) as f32
}

/// The bits of the nearest value, ties to even. Larger values become the largest finite one if `saturate`, else
/// infinity or NaN.
pub(crate) fn encode(element: ElementType, value: f32, saturate: bool) -> u8 {
    let Some(layout) = layout(element) else {
        return encode_power(value, Rounding::Up, saturate);
    };
    let width = layout.exponent + layout.mantissa;
    let ones = (1u32 << width) - 1;
    let top = 1u32 << width;
    let sign = if value.is_sign_negative() { top } else { 0 };
    let (largest, infinity, nan) = match layout.special {
        Special::Ieee => {
            let infinity = ones >> layout.mantissa << layout.mantissa;
            (infinity - 1, sign | infinity, sign | ones)
        }
        Special::AllOnes => (ones - 1, sign | ones, sign | ones),
        Special::NegativeZero => (ones, top, top),
        Special::None => (ones, sign | ones, top),
    };
    if value.is_nan() {
        return nan as u8;
    }
    let size = f64::from(value.abs());
    let rounded = if size.is_finite() {
        round(&layout, size)
    } else {
        u32::MAX
    };
    let bits = if rounded > largest {
        if saturate { sign | largest } else { infinity }
    } else if rounded == 0 && layout.special == Special::NegativeZero {
        0
    } else {
        sign | rounded
    };
    bits as u8
}

/// Bits without the sign, as if the exponent were unbounded.
fn round(layout: &Layout, size: f64) -> u32 {
    let lowest = 1 - layout.bias;
    let exponent = if size == 0.0 {
        lowest
    } else {
        (size.log2().floor() as i32).max(lowest)
    };
    // The logarithm may have been rounded up to the next integer.
    let exponent = if size < 2f64.powi(exponent) && exponent > lowest {
        exponent - 1
    } else {
        exponent
    };
    let steps = (size / 2f64.powi(exponent - layout.mantissa as i32)).round_ties_even();
    if steps >= f64::from(1 << 20) {
        return u32::MAX;
    }
    // A carry of the mantissa increments the exponent. Subnormal numbers have exponent 0, others a hidden bit.
    let above = (exponent - lowest) as u32;
    (above << layout.mantissa).saturating_add(steps as u32)
}

/// Which power of two replaces a number that is not one.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Rounding {
    Up,
    Down,
    /// To nearest, ties up.
    Nearest,
}

/// The bits of a number's absolute value in F8E8M0. Values above the largest become the largest if `saturate`, else
/// NaN. Infinity always becomes NaN.
pub(crate) fn encode_power(value: f32, rounding: Rounding, saturate: bool) -> u8 {
    let bits = value.to_bits();
    let (exponent, fraction) = (bits >> 23 & 255, bits & 0x7f_ffff);
    const HALF: u32 = 0x40_0000;
    // The smallest power, 2⁻¹²⁷, is a subnormal f32 with only the highest fraction bit set.
    let is_power = fraction == 0 || (exponent == 0 && fraction == HALF);
    let up = match rounding {
        _ if is_power => false,
        Rounding::Up => true,
        Rounding::Down => false,
        Rounding::Nearest => fraction >= HALF,
    };
    match exponent + u32::from(up) {
        _ if exponent == 255 => 255,
        255 if saturate => 254,
        power => power as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_is_encoded_again() {
        for element in [
            ElementType::F8E4M3Fn,
            ElementType::F8E4M3Fnuz,
            ElementType::F8E5M2,
            ElementType::F8E5M2Fnuz,
            ElementType::F4E2M1,
            ElementType::F6E2M3,
            ElementType::F6E3M2,
            ElementType::F8E8M0,
        ] {
            for bits in 0..=u8::MAX >> (8 - element.bits()) {
                let value = decode(element, bits);
                if !value.is_nan() {
                    assert_eq!(encode(element, value, false), bits, "{element} {bits:#x} is {value}");
                }
            }
        }
        assert_eq!(decode(ElementType::F8E4M3Fn, 0x7e), 448.0);
        assert_eq!(decode(ElementType::F8E5M2, 1), 2f32.powi(-16));
        assert_eq!(decode(ElementType::F4E2M1, 7), 6.0);
        assert_eq!(encode(ElementType::F8E4M3Fn, 1e6, true), 0x7e);
        assert_eq!(encode(ElementType::F8E4M3Fn, 1e6, false), 0x7f);
        assert_eq!(encode(ElementType::F8E5M2, f32::INFINITY, false), 0x7c);
    }

    /// As `onnx.numpy_helper.to_float8e8m0` has it.
    #[test]
    fn powers_of_two_are_rounded_as_is_said() {
        let values = [
            1.0,
            1.5,
            2.1,
            2.9,
            3.0,
            6.0,
            2f32.powi(-127),
            1.5 * 2f32.powi(-127),
            f32::MIN_POSITIVE / 4.0,
        ];
        let of = |rounding| values.map(|v| i32::from(encode_power(v, rounding, true)) - 127);
        assert_eq!(of(Rounding::Up), [0, 1, 2, 2, 2, 3, -127, -126, -126]);
        assert_eq!(of(Rounding::Down), [0, 0, 1, 1, 1, 2, -127, -127, -127]);
        assert_eq!(of(Rounding::Nearest), [0, 1, 1, 1, 2, 3, -127, -126, -127]);
        for (rounding, rounded_up) in [(Rounding::Up, true), (Rounding::Down, false), (Rounding::Nearest, true)] {
            assert_eq!(encode_power(f32::MAX, rounding, true), 254);
            assert_eq!(
                encode_power(f32::MAX, rounding, false),
                if rounded_up { 255 } else { 254 }
            );
            assert_eq!(encode_power(f32::INFINITY, rounding, true), 255);
            assert_eq!(encode_power(f32::NAN, rounding, false), 255);
        }
    }
}
