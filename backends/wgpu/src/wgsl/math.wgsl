// Elementary functions within 2 units in the last place. They use no fused multiply-add, which not every device has,
// and correct division and square root, which a device may compute with an error of 2.5.

// 2^n for n in -126..=127.
fn pow2i(n: i32) -> f32 {
    return bitcast<f32>(bitcast<u32>((n + 127) << 23u));
}

// a b - p, where p is the rounded product. The factors are split into halves whose products are exact, so fusing does
// not matter.
fn mul_err(a: f32, b: f32, p: f32) -> f32 {
    let ah = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
    let bh = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
    let al = a - ah;
    let bl = b - bh;
    return ((opaque(ah * bh) - p) + opaque(ah * bl) + opaque(al * bh)) + opaque(al * bl);
}

fn p_div(a: f32, b: f32) -> f32 {
    let m = f_abs(b);
    var s = 1.0;
    if (m > 1e18) { s = 5.421010862427522e-20; }
    if (m < 1e-18) { s = 1.8446744073709552e19; }
    let d = b * s;
    var q = opaque(a / d);
    let aq = f_abs(q);
    let aa = f_abs(a);
    if (aq > 1e-18 && aq < 1e18 && aa > 1e-25 && aa < 1e38) {
        let p = opaque(q * d);
        q = q + ((a - p) - mul_err(q, d, p)) / d;
    }
    return q * s;
}

fn p_sqrt(x: f32) -> f32 {
    if (f_is_nan(x) || f_is_zero(x)) { return x; }
    if (bitcast<u32>(x) >= 0x80000000u) { return f_nan(); }
    if (f_is_inf(x)) { return x; }
    var v = x;
    var s = 1.0;
    if (x < 1e-18) { v = x * 1.8446744073709552e19; s = 2.3283064365386963e-10; }
    if (f_is_subnormal(x)) { v = f_units(x) * 2.0; s = 2.6469779601696886e-23; }
    if (x > 1e18) { v = x * 5.421010862427522e-20; s = 4294967296.0; }
    let y = opaque(sqrt(v));
    let p = opaque(y * y);
    let rest = (v - p) - mul_err(y, y, p);
    return (y + rest * (0.5 / y)) * s;
}

fn p_rsqrt(x: f32) -> f32 {
    return p_div(1.0, p_sqrt(x));
}

fn p_exp(x: f32) -> f32 {
    if (f_is_nan(x)) { return x; }
    let c = clamp(x, -104.0, 89.0);
    let n = round(c * 1.44269504);
    let high = opaque(c - opaque(n * 0.693359375));
    let low = opaque(n * 2.12194442e-4);
    let r = opaque(high + low);
    let lost = opaque(high - r) + low;
    let p = (((0.001381459 * r + 0.008368717) * r + 0.04166839) * r + 0.16666521) * r + 0.49999994;
    let y = opaque(opaque(p * (r * r) + lost) + r) + 1.0;
    let k = i32(n);
    if (k < -125) { return f_from_units(y * pow2i(k + 149)); }
    // In two steps, so that the first result stays a normal number and only the second overflows.
    let half = k >> 1u;
    return (y * pow2i(half)) * pow2i(k - half);
}

fn expm1_nonzero(x: f32) -> f32 {
    let c = clamp(x, -20.0, 89.0);
    let n = round(c * 1.44269504);
    let high = opaque(c - opaque(n * 0.693359375));
    let low = opaque(n * 2.12194442e-4);
    let r = opaque(high + low);
    let lost = opaque(high - r) + low;
    let p = ((((1.9845889e-4 * r + 0.0013940627) * r + 0.00833339) * r + 0.041666362) * r + 0.16666666) * r + 0.5;
    // r + small is e^r - 1. The result is 2^n (r + small) + (2^n - 1), halved so that 2^128 does not overflow too
    // early.
    let small = opaque(p * (r * r) + lost);
    let scale = pow2i(i32(n) - 1);
    let base = opaque(scale - 0.5);
    let a = opaque(scale * r);
    let sum = opaque(base + a);
    let rest = select(opaque(a - sum) + base, opaque(base - sum) + a, abs(base) > abs(a));
    let half = sum + (scale * small + rest);
    return opaque(half) * 2.0;
}

fn p_expm1(x: f32) -> f32 {
    if (f_is_nan(x) || f_abs(x) < 1e-8) { return x; }
    return expm1_nonzero(x);
}

// |d| / (2 + d) with d = e^(-2|x|) - 1, which does not cancel.
fn p_tanh(x: f32) -> f32 {
    if (f_is_nan(x) || f_abs(x) < 1e-8) { return x; }
    let d = expm1_nonzero(f_abs(x) * -2.0);
    return f_copysign(p_div(d, d + 2.0), x);
}

fn p_sigmoid(x: f32) -> f32 {
    if (f_is_nan(x)) { return x; }
    let e = p_exp(f_neg(f_abs(x)));
    return p_div(select(1.0, e, x < 0.0), 1.0 + e);
}

fn log_poly(f: f32) -> f32 {
    var p = 0.06746533 * f - 0.11675964;
    p = p * f + 0.118883766;
    p = p * f - 0.12405559;
    p = p * f + 0.14219522;
    p = p * f - 0.16667996;
    p = p * f + 0.20002119;
    p = p * f - 0.2500001;
    return p * f + 0.33333313;
}

// e ln 2 + ln(1 + f) + small.
fn log_sum(e: f32, f: f32, small: f32) -> f32 {
    let ff = f * f;
    var y = (log_poly(f) * f) * ff + small;
    y = opaque(e * -2.12194442e-4 + y);
    y = opaque(ff * -0.5 + y);
    return opaque(e * 0.693359375) + opaque(f + y);
}

fn p_log(x: f32) -> f32 {
    let b = bitcast<u32>(x);
    if ((b & 0x7fffffffu) == 0u) { return -f_inf(); }
    if (f_is_nan(x)) { return x; }
    if (b >= 0x80000000u) { return f_nan(); }
    if (b == 0x7f800000u) { return x; }
    var at = b;
    var offset = 0.0;
    // A subnormal is an integer multiple of 2^-149.
    if (b < 0x00800000u) { at = bitcast<u32>(f32(b)); offset = -149.0; }
    let e = bitcast<i32>(at - 0x3f3504f3u) >> 23u;
    let m = bitcast<f32>(at - bitcast<u32>(e << 23u));
    return log_sum(f32(e) + offset, m - 1.0, 0.0);
}

fn p_log1p(x: f32) -> f32 {
    if (f_is_nan(x) || f_abs(x) < 1e-8) { return x; }
    let u = opaque(x + 1.0);
    if (u < 0.0) { return f_nan(); }
    if (u == 0.0) { return -f_inf(); }
    if (f_is_inf(u)) { return u; }
    let b = bitcast<u32>(u);
    let e = bitcast<i32>(b - 0x3f3504f3u) >> 23u;
    // Near 1 the sum is not needed: f is x itself.
    if (e == 0) { return log_sum(0.0, x, 0.0); }
    let m = bitcast<f32>(b - bitcast<u32>(e << 23u));
    let lost = select(x - opaque(u - 1.0), 1.0 - opaque(u - x), x > 1.0);
    return log_sum(f32(e), m - 1.0, lost / u);
}

fn p_erf(x: f32) -> f32 {
    if (f_is_nan(x)) { return x; }
    // In the sum below, a product would be subnormal.
    if (f_is_subnormal(x)) { return f_copysign(f_from_units(f_units(x) * 1.1283791), x); }
    let t = min(f_abs(x), 4.0);
    if (t < 1e-30) { return x * 1.1283791; }
    if (t < 0.92) {
        let s = x * x;
        var p = 8.3167696e-5 * s - 8.130011e-4;
        p = p * s + 0.0051999064;
        p = p * s - 0.02685894;
        p = p * s + 0.112836875;
        p = p * s - 0.37612632;
        p = p * s + 0.12837917;
        return x + x * p;
    }
    var p = 5.2960136e-6 * t - 4.9928996e-5;
    p = p * t - 2.749106e-5;
    p = p * t + 0.0028692689;
    p = p * t - 0.022575846;
    p = p * t + 0.105169706;
    p = p * t + 0.63567305;
    p = p * t + 0.12854145;
    return f_copysign(1.0 - p_exp(f_neg(t + t * p)), x);
}

fn f_mod(a: f32, b: f32) -> f32 {
    let ba = bitcast<u32>(a) & 0x7fffffffu;
    let bb = bitcast<u32>(b) & 0x7fffffffu;
    if (bb == 0u || ba >= 0x7f800000u || bb > 0x7f800000u) { return f_nan(); }
    if (ba < bb) { return a; }
    // As integer multiples of 2^(exponent - 150), by long division with eight digits at a time.
    let ea = max(ba >> 23u, 1u);
    let eb = max(bb >> 23u, 1u);
    var m = (ba & 0x7fffffu) | select(0u, 0x800000u, ba >= 0x800000u);
    let d = (bb & 0x7fffffu) | select(0u, 0x800000u, bb >= 0x800000u);
    m = m % d;
    var left = ea - eb;
    while (left > 0u) {
        let step = min(left, 8u);
        m = (m << step) % d;
        left = left - step;
    }
    var bits = 0u;
    if (m != 0u) {
        let up = countLeadingZeros(m) - 8u;
        let down = min(up, eb - 1u);
        m = m << down;
        bits = select(m, ((eb - down) << 23u) | (m & 0x7fffffu), m >= 0x800000u);
    }
    return bitcast<f32>(bits | (bitcast<u32>(a) & 0x80000000u));
}

fn p_remainder(a: f32, b: f32) -> f32 {
    let r = f_mod(a, b);
    if (f_is_nan(r) || f_is_zero(r)) { return r; }
    let differ = ((bitcast<u32>(r) ^ bitcast<u32>(b)) & 0x80000000u) != 0u;
    return select(r, r + b, differ);
}
