//! Floats of 8 bits and fewer: each is exactly an f32.

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
    /// As IEEE has it.
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
        // Powers of two alone.
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

/// The bits of the nearest value, halves to even. What is too large becomes the largest if `saturate`, else infinity or NaN.
pub(crate) fn encode(element: ElementType, value: f32, saturate: bool) -> u8 {
    let Some(layout) = layout(element) else {
        return encode_power(value);
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

/// Bits without the sign, as if there were exponents without end.
fn round(layout: &Layout, size: f64) -> u32 {
    let lowest = 1 - layout.bias;
    let exponent = if size == 0.0 {
        lowest
    } else {
        (size.log2().floor() as i32).max(lowest)
    };
    // The logarithm may be rounded to the next integer.
    let exponent = if size < 2f64.powi(exponent) && exponent > lowest {
        exponent - 1
    } else {
        exponent
    };
    let steps = (size / 2f64.powi(exponent - layout.mantissa as i32)).round_ties_even();
    if steps >= f64::from(1 << 20) {
        return u32::MAX;
    }
    // Steps carry over into the exponent by themselves: subnormal ones have exponent 0, others a hidden one.
    let above = (exponent - lowest) as u32;
    (above << layout.mantissa).saturating_add(steps as u32)
}

/// F8E8M0: the power of two at or above the value.
fn encode_power(value: f32) -> u8 {
    let bits = value.to_bits();
    let (exponent, fraction) = (bits >> 23 & 255, bits & 0x7f_ffff);
    match bits {
        _ if exponent == 255 => return 255,
        // The smallest is not a normal f32.
        0x40_0000 => return 0,
        _ => {}
    }
    (exponent + u32::from(fraction > 0)).min(254) as u8
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
}
