// Sine, cosine, tangent and the arctangent.

var<private> TWO_OVER_PI: array<u32, 7> = array<u32, 7>(
    0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);

fn mul_high(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let mid = ah * bl + (low >> 16u);
    let other = al * bh + (mid & 0xffffu);
    return ah * bh + (mid >> 16u) + (other >> 16u);
}

struct Angle {
    quadrant: u32,
    r: f32,
}

// x = n π/2 + r, from the digits of 2/π that matter for this exponent. Source: Payne and Hanek 1983.
fn reduce_angle(x: f32) -> Angle {
    let b = bitcast<u32>(x) & 0x7fffffffu;
    if (b <= 0x3f490fdau) { return Angle(0u, x); }
    let ia = (b << 8u) | 0x80000000u;
    let e = (b >> 23u) - 126u;
    let i = e >> 5u;
    let s = e & 31u;
    var hi = TWO_OVER_PI[i];
    var mid = TWO_OVER_PI[i + 1u];
    var lo = TWO_OVER_PI[i + 2u];
    let next = TWO_OVER_PI[i + 3u];
    if (s > 0u) {
        hi = (hi << s) | (mid >> (32u - s));
        mid = (mid << s) | (lo >> (32u - s));
        lo = (lo << s) | (next >> (32u - s));
    }
    var low = mul_high(ia, lo);
    let product = ia * mid;
    low = low + product;
    var high = mul_high(ia, mid) + select(0u, 1u, low < product) + ia * hi;
    var quadrant = high >> 30u;
    high = high & 0x3fffffffu;
    var negative = false;
    if ((high & 0x20000000u) != 0u) {
        quadrant = quadrant + 1u;
        negative = true;
        // 2^62 minus the fraction.
        high = 0x3fffffffu - high;
        low = ~low + 1u;
        high = high + select(0u, 1u, low == 0u);
    }
    // The fraction is high:low in units of 2^-62. Takes its leading 24 digits, and the 24 after them.
    let shift = countLeadingZeros(high | select(0u, 1u, high == 0u));
    var top = high;
    var rest = low;
    if (high == 0u) {
        let more = min(countLeadingZeros(low), 31u);
        top = low << more;
        rest = 0u;
        let f = f32(top >> 8u) * 1.5707963705062866 * pow2i(-54) * pow2i(0 - i32(more));
        return angle(quadrant, f, negative, x);
    }
    if (shift > 0u) {
        top = (high << shift) | (low >> (32u - shift));
        rest = low << shift;
    }
    let unit = pow2i(-22 - i32(shift));
    let fh = f32(top >> 8u) * unit;
    let fl = f32(((top & 255u) << 16u) | (rest >> 16u)) * (unit * 5.9604644775390625e-8);
    let f = opaque(fh * 1.5707963705062866);
    let err = mul_err(fh, 1.5707963705062866, f) + (fl * 1.5707963705062866 + fh * -4.371138828673793e-8);
    return angle(quadrant, opaque(f + err), negative, x);
}

fn angle(quadrant: u32, f: f32, negative: bool, x: f32) -> Angle {
    var q = quadrant;
    var r = select(f, -f, negative);
    if (bitcast<u32>(x) >= 0x80000000u) {
        r = -r;
        q = 0u - q;
    }
    return Angle(q & 3u, r);
}

// For r within ±π/4.
fn sin_core(r: f32) -> f32 {
    let s = r * r;
    let p = ((2.718084e-6 * s - 1.9839309e-4) * s + 0.008333329) * s - 0.16666667;
    return opaque((p * s) * r) + r;
}

fn cos_core(r: f32) -> f32 {
    let s = r * r;
    let p = ((-2.72054e-7 * s + 2.4799456e-5) * s - 0.0013888883) * s + 0.041666668;
    let half = opaque(s * 0.5);
    let near = opaque(1.0 - half);
    return near + ((opaque(1.0 - near) - half) + (s * s) * p);
}

fn p_sin(x: f32) -> f32 {
    if (!f_is_finite(x)) { return f_nan(); }
    if (f_abs(x) < 1e-5) { return x; }
    let a = reduce_angle(x);
    var y = 0.0;
    if ((a.quadrant & 1u) == 1u) { y = cos_core(a.r); } else { y = sin_core(a.r); }
    return bitcast<f32>(bitcast<u32>(y) ^ ((a.quadrant & 2u) << 30u));
}

fn p_cos(x: f32) -> f32 {
    if (!f_is_finite(x)) { return f_nan(); }
    let a = reduce_angle(x);
    var y = 0.0;
    if ((a.quadrant & 1u) == 1u) { y = sin_core(a.r); } else { y = cos_core(a.r); }
    return bitcast<f32>(bitcast<u32>(y) ^ (((a.quadrant + 1u) & 2u) << 30u));
}

fn p_tan(x: f32) -> f32 {
    if (!f_is_finite(x)) { return f_nan(); }
    if (f_abs(x) < 1e-5) { return x; }
    let a = reduce_angle(x);
    let s = sin_core(a.r);
    let c = cos_core(a.r);
    if ((a.quadrant & 1u) == 1u) { return p_div(-c, s); }
    return p_div(s, c);
}

// The angle of (x, y), computed without overflow or loss of small angles.
fn p_atan2(y: f32, x: f32) -> f32 {
    if (f_is_nan(x) || f_is_nan(y)) { return f_nan(); }
    var ax = f_abs(x);
    var ay = f_abs(y);
    var r = 0.0;
    if (f_is_inf(x) && f_is_inf(y)) {
        ax = 1.0;
        ay = 1.0;
    }
    // The larger coordinate first; for a large quotient, the angle to the diagonal.
    let steep = ay > ax;
    let low = select(ay, ax, steep);
    let high = select(ax, ay, steep);
    var base = 0.0;
    var base_low = 0.0;
    var z = 0.0;
    if (low > 0.41421357 * high) {
        z = p_div((low - high) * 0.5, low * 0.5 + high * 0.5);
        base = 0.7853981852531433;
        base_low = -2.1855694143368964e-8;
    } else if (!f_is_zero(low) && !f_is_inf(high)) {
        z = p_div(low, high);
    }
    let s = z * z;
    var p = 0.05046648904681206 * s - 0.0862409844994545;
    p = p * s + 0.11071287840604782;
    p = p * s - 0.14284147322177887;
    p = p * s + 0.19999976456165314;
    p = p * s - 0.3333333432674408;
    var small = (p * s) * z + base_low;
    var sum = z;
    if (steep) {
        base = 1.5707963705062866 - base;
        small = -4.371138828673793e-8 - small;
        sum = -sum;
    }
    if (bitcast<u32>(x) >= 0x80000000u) {
        base = 3.1415927410125732 - base;
        small = -8.742277657347586e-8 - small;
        sum = -sum;
    }
    r = base + (sum + small);
    return f_copysign(r, y);
}
