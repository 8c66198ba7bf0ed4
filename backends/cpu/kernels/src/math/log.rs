//! Logarithms.

use crate::simd::Simd;

/// `ln 2` in two parts, the first with so few bits that its product with an exponent is exact.
const LN2: [f32; 2] = [0.693_359_375, -2.121_944_4e-4];

/// `(ln(1 + f) - f + f²/2) / f³` for `1 + f` from `√½` to `√2`, minimax for the relative error of the logarithm,
/// highest power first.
const LOG: [f32; 9] = [
    0.067_465_33,
    -0.116_759_64,
    0.118_883_766,
    -0.124_055_59,
    0.142_195_22,
    -0.166_679_96,
    0.200_021_19,
    -0.250_000_1,
    0.333_333_13,
];

/// The bits of `√½`.
const SQRT_HALF: i32 = 0x3f35_04f3;

/// `x = 2^e m` with `m` from `√½` to `√2`, for positive normal `x`: `e` as a number, and `m`.
#[inline(always)]
fn split<S: Simd>(s: S, x: S::V) -> (S::I, S::V) {
    let e = s.shr::<23>(s.sub_int(s.bits(x), s.splat_int(SQRT_HALF)));
    (e, s.from_bits(s.sub_int(s.bits(x), s.shl::<23>(e))))
}

/// `e ln 2 + ln(1 + f) + small`.
#[inline(always)]
fn assemble<S: Simd>(s: S, e: S::V, f: S::V, small: S::V) -> S::V {
    let ff = s.mul(f, f);
    let mut y = s.mul_add(s.mul(s.poly(f, LOG), f), ff, small);
    y = s.mul_add(e, s.splat(LN2[1]), y);
    y = s.mul_add(ff, s.splat(-0.5), y);
    s.mul_add(e, s.splat(LN2[0]), s.add(f, y))
}

/// Inserts the values at 0 (minus infinity), below 0 (NaN) and at infinity; `at` is the logarithm's argument.
#[inline(always)]
fn with_edges<S: Simd>(s: S, at: S::V, y: S::V) -> S::V {
    let zero = s.splat(0.0);
    // Infinity and NaN stay; nothing else compares as not below infinity.
    let y = s.select(s.lt(at, s.splat(f32::INFINITY)), y, at);
    let y = s.select(s.lt(at, zero), s.splat(f32::NAN), y);
    s.select(s.eq(at, zero), s.splat(f32::NEG_INFINITY), y)
}

/// Natural logarithm.
#[inline(always)]
pub fn log<S: Simd>(s: S, x: S::V) -> S::V {
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(tiny, s.mul(x, s.splat(33_554_432.0)), x);
    let (e, m) = split(s, scaled);
    let e = s.add(s.from_int(e), s.select(tiny, s.splat(-25.0), s.splat(0.0)));
    with_edges(s, x, assemble(s, e, s.sub(m, s.splat(1.0)), s.splat(0.0)))
}

/// `ln(1 + x)`.
#[inline(always)]
pub(super) fn log1p<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    let u = s.add(x, one);
    let (e, m) = split(s, u);
    // The rounding error of the sum. For `u` near 1 the sum is not needed: f is x itself.
    let lost = s.div(s.sub(x, s.sub(u, one)), u);
    let near = s.eq_int(e, s.splat_int(0));
    let f = s.select(near, x, s.sub(m, one));
    let small = s.select(near, s.splat(0.0), lost);
    let y = with_edges(s, u, assemble(s, s.from_int(e), f, small));
    s.select(s.eq(x, s.splat(0.0)), x, y)
}
