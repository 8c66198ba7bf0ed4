//! Elementary functions of f32 within the contract's bounds, unlike the shaders' own, for which WGSL allows errors of
//! thousands of units in the last place.
//!
//! Ranges are reduced by parts of a constant, and polynomials do the rest; each names its source. Shader compilers may
//! reorder sums and flush numbers below 2⁻¹²⁶ to 0. Therefore nothing here recovers the rounding error of a sum, and
//! such numbers are read and written as integers.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, LOG2_E, PI};

use cubecl::prelude::*;

/// The function that a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Exp,
    Expm1,
    Log,
    Log1p,
    Rsqrt,
    Sin,
    Cos,
    Tan,
    Tanh,
    Sigmoid,
    Erf,
}

#[cube]
pub(crate) fn function(x: f32, #[comptime] function: Function) -> f32 {
    match function {
        Function::Exp => exp(x),
        Function::Expm1 => expm1(x),
        Function::Log => log(x),
        Function::Log1p => log1p(x),
        Function::Rsqrt => 1.0f32 / x.sqrt(),
        Function::Sin => circular(x, 0u32),
        Function::Cos => circular(x, 1u32),
        Function::Tan => tan(x),
        Function::Tanh => tanh(x),
        Function::Sigmoid => 1.0f32 / (1.0f32 + exp(-x)),
        Function::Erf => erf(x),
    }
}

/// NaN, made from bits so that no compiler folds it.
#[cube]
fn nan(bits: u32) -> f32 {
    f32::reinterpret((bits & 1u32) | 0x7fc0_0000u32)
}

#[cube]
fn magnitude(x: f32) -> u32 {
    u32::reinterpret(x) & 0x7fff_ffffu32
}

#[cube]
fn is_nan(x: f32) -> bool {
    magnitude(x) > 0x7f80_0000u32
}

/// x with the sign of another number.
#[cube]
fn signed(x: f32, sign: f32) -> f32 {
    f32::reinterpret(magnitude(x) | (u32::reinterpret(sign) & 0x8000_0000u32))
}

/// 2ⁿ for n from −126 to 127.
#[cube]
fn power_of_two(n: i32) -> f32 {
    f32::reinterpret(u32::cast_from(n + 127i32) << 23u32)
}

/// `eʳ - 1` for |r| ≤ ln 2 / 2. Source: Moshier, Cephes, `expf.c`.
#[cube]
fn expm1_near_zero(r: f32) -> f32 {
    let mut p = r * 1.987_569_1e-4f32 + 1.398_199_9e-3f32;
    p = p * r + 8.333_452e-3f32;
    p = p * r + 4.166_579_6e-2f32;
    p = p * r + 1.666_666_5e-1f32;
    p = p * r + 0.5f32;
    p * r * r + r
}

/// The multiple of ln 2 in x, and the rest. The difference is computed in units of 2⁻⁴⁰, since a compiler may merge the
/// parts of a float constant.
#[cube]
fn by_ln2(x: f32) -> (i32, f32) {
    let n = i32::cast_from((x * LOG2_E).round());
    let rest = i64::cast_from(x * 1_099_511_627_776.0f32) - i64::cast_from(n) * 762_123_384_786i64;
    // In units of 2⁻³¹ it fits 32 bits.
    let r = f32::cast_from(i32::cast_from(rest >> 9i64)) * power_of_two(-31i32);
    (n, select(n == 0i32, x, r))
}

#[cube]
pub(crate) fn exp(x: f32) -> f32 {
    let limited = x.clamp(-104.0f32, 90.0f32);
    let (n, r) = by_ln2(limited);
    let y = expm1_near_zero(r) + 1.0f32;
    let half = n >> 1i32;
    let large = y * power_of_two(half) * power_of_two(n - half);
    // Below 2⁻¹²⁶ the bits are the number in units of 2⁻¹⁴⁹.
    let small = f32::reinterpret(u32::cast_from(
        (y * power_of_two(clamp_int(n + 149i32, -1i32, 24i32))).round(),
    ));
    let result = select(n < -125i32, small, large);
    select(is_nan(x), x, result)
}

#[cube]
fn clamp_int(x: i32, low: i32, high: i32) -> i32 {
    select(x < low, low, select(x > high, high, x))
}

#[cube]
fn expm1(x: f32) -> f32 {
    let limited = x.clamp(-40.0f32, 89.0f32);
    let (n, r) = by_ln2(limited);
    let p = expm1_near_zero(r);
    // Computes half the result, since 2ⁿ may overflow.
    let scale = power_of_two(n - 1i32);
    let far = (p * scale + (scale - 0.5f32)) * 2.0f32;
    let result = select(n == 0i32, p, far);
    // For numbers this small, including those below 2⁻¹²⁶, the result is the argument.
    let tiny = magnitude(x) < 0x3300_0000u32;
    select(tiny || is_nan(x), x, result)
}

/// `ln (1 + f) + e ln 2` for 1 + f from √½ to √2. Source: Moshier, Cephes, `logf.c`.
#[cube]
fn log_near_one(f: f32, e: f32) -> f32 {
    let z = f * f;
    let mut p = f * 7.037_683_6e-2f32 - 1.151_461e-1f32;
    p = p * f + 1.167_699_9e-1f32;
    p = p * f - 1.242_014_1e-1f32;
    p = p * f + 1.424_932_3e-1f32;
    p = p * f - 1.666_805_8e-1f32;
    p = p * f + 2.000_071_5e-1f32;
    p = p * f - 2.499_999_4e-1f32;
    p = p * f + 3.333_333e-1f32;
    let mut y = p * f * z;
    y += e * -2.121_944_4e-4f32;
    y -= z * 0.5f32;
    (f + y) + e * 0.693_359_4f32
}

#[cube]
pub(crate) fn log(x: f32) -> f32 {
    let bits = u32::reinterpret(x);
    let tiny = bits < 0x0080_0000u32;
    // Below 2⁻¹²⁶, the bits as an integer have the same logarithm, except for 149 ln 2.
    let normal = select(
        tiny,
        u32::reinterpret(f32::cast_from(i32::cast_from(bits & 0x007f_ffffu32))),
        bits,
    );
    let mut e = i32::cast_from((normal >> 23u32) & 0xffu32) - 126i32;
    let m = f32::reinterpret((normal & 0x007f_ffffu32) | 0x3f00_0000u32);
    let low = m < 0.707_106_77f32;
    e = select(low, e - 1i32, e);
    let f = select(low, m + m - 1.0f32, m - 1.0f32);
    e = select(tiny, e - 149i32, e);
    let finite = log_near_one(f, f32::cast_from(e));
    let zero = (bits & 0x7fff_ffffu32) == 0u32;
    let result = select(zero, f32::reinterpret(bits | 0xff80_0000u32), finite);
    let result = select(bits == 0x7f80_0000u32, x, result);
    // If the sign bit is set, the number is negative, −0, or NaN.
    let result = select(bits > 0x8000_0000u32, nan(bits), result);
    select(is_nan(x), x, result)
}

#[cube]
fn log1p(x: f32) -> f32 {
    // 1 + x = 2ᵏ (1 + f), where f is computed from x instead of the rounded 1 + x.
    let bits = u32::reinterpret(1.0f32 + x);
    // Subtracts the bits of √½, so that the exponent is that of the nearest power of two.
    let k = i32::cast_from((bits - 0x3f35_04f3u32) >> 23u32);
    let k = select(k > 128i32, k - 512i32, k);
    let back = power_of_two(clamp_int(-k, -64i32, 64i32));
    let f = x * back + (back - 1.0f32);
    let near = log_near_one(f, f32::cast_from(k));
    let far = log(1.0f32 + x);
    let result = select(x > -1.0f32 && x < 16_777_216.0f32, near, far);
    let tiny = magnitude(x) < 0x3300_0000u32;
    select(tiny || is_nan(x), x, result)
}

/// Source: Moshier, Cephes, `tanhf.c`.
#[cube]
pub(crate) fn tanh(x: f32) -> f32 {
    let size = x.abs();
    let far = 1.0f32 - 2.0f32 / (exp(size + size) + 1.0f32);
    let z = x * x;
    let mut p = z * -5.704_988_7e-3f32 + 2.063_908_8e-2f32;
    p = p * z - 5.373_971_6e-2f32;
    p = p * z + 1.333_144_2e-1f32;
    p = p * z - 3.333_328e-1f32;
    let near = p * z * x + x;
    let result = select(size < 0.625f32, near, signed(far, x));
    let tiny = magnitude(x) < 0x3300_0000u32;
    select(tiny || is_nan(x), x, result)
}

/// Source: the minimax polynomials of N. Juffa's `my_erff` (2020), within 1 unit in the last place with fused products.
#[cube]
fn erf(x: f32) -> f32 {
    let t = x.abs();
    let s = x * x;
    let mut r = t * -1.728_534_7e-5f32 + 3.831_971_3e-4f32;
    let u = t * -3.883_964_4e-3f32 + 2.425_462_2e-2f32;
    r = r * s + u;
    r = r * t - 1.067_778_8e-1f32;
    r = r * t - 6.348_467e-1f32;
    r = r * t - 1.287_175_1e-1f32;
    r = r * t - t;
    let far = signed(1.0f32 - exp(r), x);
    let mut p = s * -5.967_617e-4f32 + 4.991_194_2e-3f32;
    p = p * s - 2.676_813_5e-2f32;
    p = p * s + 1.128_199_3e-1f32;
    p = p * s - 3.761_253_4e-1f32;
    p = p * s + 1.283_791_7e-1f32;
    let near = p * x + x;
    // The polynomial's exponent grows without bound, and so does its error.
    let far = select(t > 4.0f32, signed(1.0f32, x), far);
    select(is_nan(x), x, select(t > 0.927_734_4f32, far, near))
}

/// The words of 2/π after the binary point; the first one is 0, for shifts.
#[cube]
fn two_over_pi(i: u32) -> u32 {
    let low = select(
        i == 1u32,
        0x28be_60dbu32,
        select(i == 2u32, 0x9391_054au32, 0x7f09_d5f4u32),
    );
    let high = select(
        i == 4u32,
        0x7d4d_3770u32,
        select(i == 5u32, 0x36d8_a566u32, 0x4f10_e410u32),
    );
    select(i == 0u32, 0u32, select(i < 4u32, low, high))
}

/// The quarter of the circle in which |x| lies, and the distance from the nearest multiple of π/2, for any finite x.
///
/// Source: Payne and Hanek, "Radian reduction for trigonometric functions" (1983), on 96 bits of 2/π, as in N. Juffa's
/// `trig_red_slowpath_f`.
#[cube]
fn by_half_pi(x: f32) -> (u32, f32) {
    let bits = magnitude(x);
    let mantissa = (bits << 8u32) | 0x8000_0000u32;
    let exponent = select(bits < 0x3f00_0000u32, 0u32, (bits >> 23u32) - 126u32);
    let i = exponent >> 5u32;
    let shift = exponent & 31u32;
    let w0 = two_over_pi(i);
    let w1 = two_over_pi(i + 1u32);
    let w2 = two_over_pi(i + 2u32);
    let w3 = two_over_pi(i + 3u32);
    // In two steps, since a shift by 32 is not defined.
    let back = 31u32 - shift;
    let high = (w0 << shift) | ((w1 >> 1u32) >> back);
    let middle = (w1 << shift) | ((w2 >> 1u32) >> back);
    let low = (w2 << shift) | ((w3 >> 1u32) >> back);
    let wide = u64::cast_from(mantissa);
    let mut product = (wide * u64::cast_from(low)) >> u64::cast_from(32u32);
    product += wide * u64::cast_from(middle);
    let mut top = u32::cast_from(product >> u64::cast_from(32u32)) + mantissa * high;
    let mut bottom = u32::cast_from(product & u64::cast_from(0xffff_ffffu32));
    let mut quarter = top >> 30u32;
    top &= 0x3fff_ffffu32;
    let above = top >= 0x2000_0000u32;
    // Rounds to the nearest multiple: above the middle, the distance is measured from the next multiple, downwards.
    quarter = select(above, quarter + 1u32, quarter);
    let borrow = select(bottom == 0u32, 0u32, 1u32);
    top = select(above, 0x4000_0000u32 - top - borrow, top);
    bottom = select(above, 0u32 - bottom, bottom);
    // The 32 bits from the first set one.
    let empty = top == 0u32;
    let first = select(empty, bottom, top);
    let second = select(empty, 0u32, bottom);
    let zeros = u32::cast_from(first.leading_zeros());
    let lead = (first << zeros) | ((second >> 1u32) >> (31u32 - zeros));
    // Multiplies by π/2, and drops the last bit, so that i32 holds the result.
    let scaled = u32::cast_from((u64::cast_from(lead) * u64::cast_from(0xc90f_daa2u32)) >> u64::cast_from(33u32));
    let exponent = -28i32 - i32::cast_from(zeros) - select(empty, 32i32, 0i32);
    let rest = f32::cast_from(i32::cast_from(scaled)) * power_of_two(exponent);
    let rest = select(above, -rest, rest);
    // Below π/4 the number is its own rest.
    let own = bits < 0x3f49_0fdbu32;
    (select(own, 0u32, quarter), select(own, x.abs(), rest))
}

/// The sine or, a quarter further on, the cosine. Source: Moshier, Cephes, `sinf.c`.
#[cube]
fn circular(x: f32, ahead: u32) -> f32 {
    let (quarter, r) = by_half_pi(x);
    let z = r * r;
    let mut p = z * -1.951_529_6e-4f32 + 8.332_161e-3f32;
    p = p * z - 1.666_665_5e-1f32;
    let sine = p * z * r + r;
    let mut p = z * 2.443_315_7e-5f32 - 1.388_731_6e-3f32;
    p = p * z + 4.166_664_6e-2f32;
    let cosine = p * z * z - z * 0.5f32 + 1.0f32;
    let place = quarter + ahead;
    let y = select((place & 1u32) == 0u32, sine, cosine);
    let y = select((place & 2u32) == 0u32, y, -y);
    // The sine is odd.
    let y = select(ahead == 0u32 && (u32::reinterpret(x) >> 31u32) == 1u32, -y, y);
    let tiny = ahead == 0u32 && magnitude(x) < 0x3300_0000u32;
    let y = select(tiny, x, y);
    select(magnitude(x) >= 0x7f80_0000u32, nan(u32::reinterpret(x)), y)
}

/// Source: Moshier, Cephes, `tanf.c`.
#[cube]
fn tan(x: f32) -> f32 {
    let (quarter, r) = by_half_pi(x);
    let z = r * r;
    let mut p = z * 9.385_402e-3f32 + 3.119_922_3e-3f32;
    p = p * z + 2.443_013_5e-2f32;
    p = p * z + 5.341_128e-2f32;
    p = p * z + 1.333_879_9e-1f32;
    p = p * z + 3.333_315_7e-1f32;
    let y = p * z * r + r;
    let y = select((quarter & 1u32) == 0u32, y, -1.0f32 / y);
    let y = select((u32::reinterpret(x) >> 31u32) == 1u32, -y, y);
    let y = select(magnitude(x) < 0x3300_0000u32, x, y);
    select(magnitude(x) >= 0x7f80_0000u32, nan(u32::reinterpret(x)), y)
}

/// The angle of the point (x, y). Source: Moshier, Cephes, `atanf.c`.
#[cube]
pub(crate) fn angle(y: f32, x: f32) -> f32 {
    let (high, wide) = (y.abs(), x.abs());
    let steep = high > wide;
    let below = select(steep, high, wide);
    let ratio = select(steep, wide, high) / below;
    let ratio = select(high == wide, select(below == 0.0f32, 0.0f32, 1.0f32), ratio);
    let far = ratio > 0.414_213_57f32;
    let t = select(far, (ratio - 1.0f32) / (ratio + 1.0f32), ratio);
    let z = t * t;
    let mut p = z * 8.053_744_6e-2f32 - 1.387_768_6e-1f32;
    p = p * z + 1.997_771_1e-1f32;
    p = p * z - 3.333_295e-1f32;
    let arc = p * z * t + t;
    let arc = select(far, arc + FRAC_PI_4, arc);
    let arc = select(steep, FRAC_PI_2 - arc, arc);
    let back = (u32::reinterpret(x) >> 31u32) == 1u32;
    let arc = select(back, PI - arc, arc);
    let lost = select(is_nan(x), x, y);
    select(is_nan(lost), lost, signed(arc, y))
}

/// `aᵇ`, with C's results in the special cases.
#[cube]
pub(crate) fn power(a: f32, b: f32) -> f32 {
    let size = exp(b * log(a.abs()));
    let whole = b.floor() == b;
    let halved = b * 0.5f32;
    let odd = whole && halved.floor() != halved;
    let negative = (u32::reinterpret(a) >> 31u32) == 1u32;
    let y = select(negative && odd, -size, size);
    let finite = magnitude(a) != 0u32 && magnitude(a) < 0x7f80_0000u32;
    let y = select(negative && finite && !whole, nan(u32::reinterpret(a)), y);
    let one = a == 1.0f32 || b == 0.0f32 || (a == -1.0f32 && magnitude(b) == 0x7f80_0000u32);
    let y = select(one, 1.0f32, y);
    select((is_nan(a) || is_nan(b)) && !one, nan(u32::reinterpret(a)), y)
}
