//! Sine, cosine and tangent.

use crate::simd::Simd;

/// The largest argument that is reduced with `π/2` in three parts; larger ones are computed in f64.
const LIMIT: f32 = 71_000.0;

/// `π/2` in three parts of 24 bits.
const HALF_PI: [f32; 3] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8, -1.715_124_5e-15];

/// `(sin r - r) / r³` by powers of `r²`, for `r` within `±π/4`, minimax for the relative error, highest power first.
const SIN: [f32; 4] = [2.718_084e-6, -1.983_930_9e-4, 0.008_333_329, -0.166_666_67];

/// `(cos r - 1 + r²/2) / r⁴` by powers of `r²`, in the same way.
const COS: [f32; 4] = [-2.720_54e-7, 2.479_945_6e-5, -0.001_388_888_3, 0.041_666_668];

/// `x = n π/2 + r`: `n` and `r`.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::V) -> (S::I, S::V) {
    let n = s.round(s.mul(x, s.splat(std::f32::consts::FRAC_2_PI)));
    let minus_n = s.neg(n);
    let mut r = x;
    for part in HALF_PI {
        r = s.mul_add(minus_n, s.splat(part), r);
    }
    (s.to_int(n), r)
}

/// `sin r` and `cos r` for `r` within `±π/4`.
#[inline(always)]
fn both<S: Simd>(s: S, r: S::V) -> (S::V, S::V) {
    let rr = s.mul(r, r);
    let sin = s.mul_add(s.mul(s.poly(rr, SIN), rr), r, r);
    let near_one = s.mul_add(rr, s.splat(-0.5), s.splat(1.0));
    let cos = s.mul_add(s.mul(rr, rr), s.poly(rr, COS), near_one);
    (sin, cos)
}

/// Recomputes lanes beyond [`LIMIT`] in f64, including NaN and infinity.
#[inline(always)]
fn with_large<S: Simd>(s: S, x: S::V, y: S::V, exact: fn(f64) -> f64) -> S::V {
    let fine = s.lt(s.abs(x), s.splat(LIMIT));
    let flags = s.select(fine, s.splat(0.0), s.splat(1.0));
    if !s.any(s.eq(flags, s.splat(1.0))) {
        return y;
    }
    large(s, x, y, exact)
}

#[inline(always)]
fn large<S: Simd>(s: S, x: S::V, y: S::V, exact: fn(f64) -> f64) -> S::V {
    const MAX_LANES: usize = 16;
    const { assert!(S::N <= MAX_LANES) };
    let mut xs = [0.0; MAX_LANES];
    let mut ys = [0.0; MAX_LANES];
    // SAFETY: both arrays hold at least one register.
    unsafe {
        s.store(xs.as_mut_ptr(), x);
        s.store(ys.as_mut_ptr(), y);
    }
    for (y, &x) in ys.iter_mut().zip(&xs).take(S::N) {
        // Written so that NaN is included.
        if !matches!(x.abs().partial_cmp(&LIMIT), Some(std::cmp::Ordering::Less)) {
            *y = exact(x.into()) as f32;
        }
    }
    // SAFETY: the array holds at least one register.
    unsafe { s.load(ys.as_ptr()) }
}

/// Sine.
#[inline(always)]
pub(super) fn sin<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, r) = reduce(s, x);
    let (sin, cos) = both(s, r);
    let odd = s.eq_int(s.and_int(n, s.splat_int(1)), s.splat_int(1));
    let minus = s.shl::<30>(s.and_int(n, s.splat_int(2)));
    let y = s.xor_sign(s.select(odd, cos, sin), minus);
    let y = s.select(s.eq(x, s.splat(0.0)), x, y);
    with_large(s, x, y, f64::sin)
}

/// Cosine.
#[inline(always)]
pub(super) fn cos<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, r) = reduce(s, x);
    let (sin, cos) = both(s, r);
    let odd = s.eq_int(s.and_int(n, s.splat_int(1)), s.splat_int(1));
    let minus = s.shl::<30>(s.and_int(s.add_int(n, s.splat_int(1)), s.splat_int(2)));
    let y = s.xor_sign(s.select(odd, sin, cos), minus);
    with_large(s, x, y, f64::cos)
}

/// Tangent.
#[inline(always)]
pub(super) fn tan<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, r) = reduce(s, x);
    let (sin, cos) = both(s, r);
    let odd = s.eq_int(s.and_int(n, s.splat_int(1)), s.splat_int(1));
    let y = s.div(s.select(odd, s.neg(cos), sin), s.select(odd, sin, cos));
    let y = s.select(s.eq(x, s.splat(0.0)), x, y);
    with_large(s, x, y, f64::tan)
}
