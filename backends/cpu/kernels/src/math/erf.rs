//! The error function and GELU.

use super::exponential::{bounded_abs, exp, exp_nonpositive, gate};
use super::normal;
use crate::simd::Simd;

/// Where [`erf`] switches from one form to the other.
const SMALL: f32 = 0.92;

/// `erf(x) / x - 1` by powers of `x²` for `|x| < 0.93`, minimax for the relative error, highest power first.
const NEAR: [f32; 7] = [
    8.316_769_6e-5,
    -8.130_011e-4,
    0.005_199_906_4,
    -0.026_858_94,
    0.112_836_875,
    -0.376_126_32,
    0.128_379_17,
];

/// `-ln(1 - erf(t)) / t - 1` for `t` from 0.9 to 4, minimax for the relative error of `erf`, highest power first.
const FAR: [f32; 8] = [
    5.296_013_6e-6,
    -4.992_899_6e-5,
    -2.749_106e-5,
    0.002_869_268_9,
    -0.022_575_846,
    0.105_169_706,
    0.635_673_05,
    0.128_541_45,
];

/// `Φ(-v) e^(v²/2)` by powers of `(v - 3.5) / (v + 3.5)` for `v` from 0 to 15, minimax for the relative error, highest
/// power first.
const TAIL: [f32; 11] = [
    -1.943_065e-5,
    -4.961_915_7e-5,
    1.335_127_3e-4,
    3.880_258_3e-4,
    -0.001_381_770_2,
    -0.001_560_794_7,
    0.019_065_706,
    -0.061_639_5,
    0.125_855_25,
    -0.187_139_69,
    0.106_345_154,
];

/// `1 / √(2π)`.
const DENSITY: f32 = 0.398_942_3;

/// Gauss's error function.
#[inline(always)]
pub(super) fn erf<S: Simd>(s: S, x: S::V) -> S::V {
    let xx = s.mul(x, x);
    let near = s.mul_add(s.poly(xx, NEAR), x, x);
    let t = bounded_abs(s, x, 4.0);
    let minus_log = s.mul_add(s.poly(t, FAR), t, t);
    let far = s.sub(s.splat(1.0), exp_nonpositive(s, s.neg(minus_log)));
    let far = s.xor_sign(far, s.sign_bit(x));
    s.select(s.lt(t, s.splat(SMALL)), near, far)
}

/// `Φ(-v) e^(v²/2)` and `e^(-v²/2)` for `v` from 0 to 15.
#[inline(always)]
fn normal_tail<S: Simd>(s: S, v: S::V) -> (S::V, S::V) {
    let a = s.splat(3.5);
    let q = s.div(s.sub(v, a), s.add(v, a));
    // The square is split in two, since its rounding error would cost up to 100 ulp.
    let half = s.mul(v, s.splat(-0.5));
    let high = s.mul(half, v);
    let low = s.mul_add(half, v, s.neg(high));
    let bell = exp(s, high);
    let bell = s.mul_add(bell, low, bell);
    (s.poly(q, TAIL), bell)
}

/// A function from its table in [`normal`], for `v` from 0 to the end of the table.
#[inline(always)]
fn by_pieces<S: Simd, const TERMS: usize>(s: S, v: S::V, table: &[[f32; 32]; TERMS]) -> S::V {
    let piece = s.round(s.mul(v, s.splat(1.0 / normal::STEP)));
    let within = s.mul_add(piece, s.splat(-normal::STEP), v);
    let piece = s.to_int(piece);
    let mut sum = s.pick(&table[0], piece);
    for coefficients in &table[1..] {
        sum = s.mul_add(sum, within, s.pick(coefficients, piece));
    }
    sum
}

/// `x Φ(x)`.
#[inline(always)]
pub(super) fn gelu<S: Simd>(s: S, x: S::V) -> S::V {
    if !S::PICKS {
        return gelu_anywhere(s, x);
    }
    let v = bounded_abs(s, x, normal::END);
    let y = gate(s, x, v, by_pieces(s, v, &normal::TAIL));
    // Chosen lane by lane, so that no result depends on its neighbours. On the right, the tail no longer affects the
    // result beyond the table's end.
    let ended = s.lt(x, s.splat(-normal::END));
    if s.any(ended) {
        return s.select(ended, gelu_anywhere(s, x), y);
    }
    y
}

#[inline(always)]
fn gelu_anywhere<S: Simd>(s: S, x: S::V) -> S::V {
    let v = bounded_abs(s, x, 15.0);
    let (scaled, bell) = normal_tail(s, v);
    // `v` is multiplied first, so that no intermediate is subnormal unless the result is.
    gate(s, x, s.mul(v, scaled), bell)
}

/// Derivative of [`gelu`]: `Φ(x) + x φ(x)`.
#[inline(always)]
pub(super) fn gelu_slope<S: Simd>(s: S, x: S::V) -> S::V {
    if !S::PICKS {
        return slope(s, x, slope_anywhere(s, x));
    }
    let y = by_pieces(s, bounded_abs(s, x, normal::END), &normal::SLOPE);
    let ended = s.lt(x, s.splat(-normal::END));
    if s.any(ended) {
        return slope(s, x, s.select(ended, slope_anywhere(s, x), y));
    }
    slope(s, x, y)
}

/// `Φ(-v) - v φ(v)` with `v = |x|`.
#[inline(always)]
fn slope_anywhere<S: Simd>(s: S, x: S::V) -> S::V {
    let v = bounded_abs(s, x, 15.0);
    let (scaled, bell) = normal_tail(s, v);
    s.mul(s.mul_add(v, s.splat(-DENSITY), scaled), bell)
}

/// The derivative at `x` from `left`, that at `-|x|`: for positive `x` it is 1 minus that.
#[inline(always)]
fn slope<S: Simd>(s: S, x: S::V, left: S::V) -> S::V {
    s.select(s.lt(x, s.splat(0.0)), left, s.sub(s.splat(1.0), left))
}
