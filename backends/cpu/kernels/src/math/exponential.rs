//! The exponential function, and functions made of it.

use super::log::log1p;
use crate::simd::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// `ln 2` in two parts; with a fused multiply-add the difference `x - n ln 2` keeps all its bits.
const LN2: [f32; 2] = [std::f32::consts::LN_2, -1.904_654_2e-9];

/// `(e^r - 1 - r) / r²` on `±ln 2 / 2`, minimax for the error relative to `e^r`, highest power first.
const EXP: [f32; 5] = [0.001_381_459, 0.008_368_717, 0.041_668_39, 0.166_665_21, 0.499_999_94];

/// The same, minimax for the error relative to `e^r - 1`.
const EXPM1: [f32; 6] = [
    1.984_588_9e-4,
    0.001_394_062_7,
    0.008_333_39,
    0.041_666_362,
    0.166_666_66,
    0.5,
];

/// `x = n ln 2 + r` with `n` an integer.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let minus_n = s.neg(n);
    let r = s.mul_add(minus_n, s.splat(LN2[0]), x);
    (n, s.mul_add(minus_n, s.splat(LN2[1]), r))
}

#[inline(always)]
fn clamp<S: Simd>(s: S, x: S::V, low: f32, high: f32) -> S::V {
    s.min(s.splat(high), s.max(s.splat(low), x))
}

/// `2^n` for `n` in -126..=127.
#[inline(always)]
fn pow2<S: Simd>(s: S, n: S::I) -> S::V {
    s.from_bits(s.shl::<23>(s.add_int(n, s.splat_int(127))))
}

/// `e^x`.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // Beyond these the result is 0 or infinity.
    let (n, r) = reduce(s, clamp(s, x, -104.0, 89.0));
    let p = s.poly(r, EXP);
    let y = s.add(s.mul_add(p, s.mul(r, r), r), s.splat(1.0));
    // In two steps, so that the first stays a normal number and the second rounds to a subnormal or overflows.
    let n = s.to_int(n);
    let half = s.shr::<1>(n);
    s.mul(s.mul(y, pow2(s, half)), pow2(s, s.sub_int(n, half)))
}

/// `e^x` for `x` up to 0, with subnormal results as 0. Needs fewer instructions than [`exp`].
#[inline(always)]
pub fn exp_nonpositive<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, r) = reduce(s, s.max(s.splat(-88.0), x));
    let p = s.poly(r, EXP);
    let y = s.add(s.mul_add(p, s.mul(r, r), r), s.splat(1.0));
    // The smallest exponent here, -127, has the bits of 0.
    s.mul(y, pow2(s, s.to_int(n)))
}

/// `e^x - 1` for `x` that is not 0; for 0 the sign of zero is lost.
#[inline(always)]
fn expm1_nonzero<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, r) = reduce(s, clamp(s, x, -20.0, 89.0));
    let y = s.mul_add(s.poly(r, EXPM1), s.mul(r, r), r);
    // 2^n y + (2^n - 1), halved so that 2^128 does not overflow too early.
    let scale = pow2(s, s.sub_int(s.to_int(n), s.splat_int(1)));
    let half = s.mul_add(scale, y, s.sub(scale, s.splat(0.5)));
    s.add(half, half)
}

/// `e^x - 1`.
#[inline(always)]
pub(super) fn expm1<S: Simd>(s: S, x: S::V) -> S::V {
    s.select(s.eq(x, s.splat(0.0)), x, expm1_nonzero(s, x))
}

/// Hyperbolic tangent: `|d| / (2 + d)` with `d = e^(-2|x|) - 1`, which does not cancel.
#[inline(always)]
pub(super) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let d = expm1_nonzero(s, s.mul(s.abs(x), s.splat(-2.0)));
    let t = s.div(s.abs(d), s.add(d, s.splat(2.0)));
    s.xor_sign(t, s.sign_bit(x))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let e = exp(s, s.neg(s.abs(x)));
    let one = s.splat(1.0);
    s.div(s.select(s.lt(x, s.splat(0.0)), e, one), s.add(one, e))
}

/// `sigmoid(-v)` for `v` from 0 up.
#[inline(always)]
fn lower_sigmoid<S: Simd>(s: S, v: S::V) -> S::V {
    let e = exp(s, s.neg(v));
    s.div(e, s.add(s.splat(1.0), e))
}

/// `max(x, 0) - v tail`: `x` times a distribution function whose lower tail at `-v` is `tail`, where `v = |x|`. As long
/// as `v` is bounded, this neither cancels on the left nor multiplies infinity by zero.
#[inline(always)]
pub(super) fn gate<S: Simd>(s: S, x: S::V, v: S::V, tail: S::V) -> S::V {
    s.mul_add(s.neg(v), tail, s.max(s.splat(0.0), x))
}

/// `|x|`, at most `most`; a NaN stays.
#[inline(always)]
pub(super) fn bounded_abs<S: Simd>(s: S, x: S::V, most: f32) -> S::V {
    s.min(s.splat(most), s.abs(x))
}

/// `x sigmoid(x)`.
#[inline(always)]
pub(super) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    let v = bounded_abs(s, x, 128.0);
    gate(s, x, v, lower_sigmoid(s, v))
}

/// `σ(u)` and `σ(u) (1 - σ(u))`, the latter without the cancellation in `1 - σ`.
#[inline(always)]
fn logistic<S: Simd>(s: S, u: S::V) -> (S::V, S::V) {
    let e = exp(s, s.neg(s.abs(u)));
    let one = s.splat(1.0);
    let upper = s.div(one, s.add(one, e));
    let lower = s.mul(e, upper);
    (s.select(s.lt(u, s.splat(0.0)), lower, upper), s.mul(lower, upper))
}

/// Derivative of [`silu`]: `σ + x σ'`.
#[inline(always)]
pub(super) fn silu_slope<S: Simd>(s: S, x: S::V) -> S::V {
    let x = clamp(s, x, -128.0, 128.0);
    let (sigma, bell) = logistic(s, x);
    s.mul_add(x, bell, sigma)
}

/// `2 √(2/π) (v + 0.044715 v³)`, the argument of GELU's tanh form, doubled.
#[inline(always)]
fn gelu_tanh_argument<S: Simd>(s: S, v: S::V) -> S::V {
    let cubic = s.mul_add(s.mul(v, v), s.splat(0.071_354_816), s.splat(1.595_769_1));
    s.mul(v, cubic)
}

/// GELU by its tanh form, which is `x sigmoid(2u)`.
#[inline(always)]
pub(super) fn gelu_tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let v = bounded_abs(s, x, 16.0);
    gate(s, x, v, lower_sigmoid(s, gelu_tanh_argument(s, v)))
}

/// Derivative of [`gelu_tanh`]: with `σ` at `2u`, `σ + x σ' 2u'`.
#[inline(always)]
pub(super) fn gelu_tanh_slope<S: Simd>(s: S, x: S::V) -> S::V {
    let x = clamp(s, x, -16.0, 16.0);
    let (sigma, bell) = logistic(s, gelu_tanh_argument(s, x));
    let inner = s.mul_add(s.mul(x, x), s.splat(3.0 * 0.071_354_816), s.splat(1.595_769_1));
    s.mul_add(s.mul(x, inner), bell, sigma)
}

/// `ln(1 + e^(βx)) / β`, or `x` if `βx` is above the threshold.
#[inline(always)]
pub(super) fn softplus<S: Simd>(s: S, x: S::V, beta: f32, threshold: f32) -> S::V {
    let z = s.mul(x, s.splat(beta));
    let soft = s.add(s.max(s.splat(0.0), z), log1p(s, exp(s, s.neg(s.abs(z)))));
    s.select(s.lt(s.splat(threshold), z), x, s.div(soft, s.splat(beta)))
}

/// `x` for positive `x`, else `α (e^x - 1)`.
#[inline(always)]
pub(super) fn elu<S: Simd>(s: S, x: S::V, alpha: f32) -> S::V {
    s.select(s.lt(s.splat(0.0), x), x, s.mul(expm1(s, x), s.splat(alpha)))
}
