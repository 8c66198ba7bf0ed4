// Operations on the bits of numbers, hidden from compilers that assume that there are no NaN.

var<private> INF_BITS: u32 = 0x7f800000u;

var<private> NAN_BITS: u32 = 0x7fc00000u;

// The number itself, in a form that compilers cannot see through: the first parameter is always 0. Shader compilers
// fuse, factor out and cancel as they like, which ruins carefully ordered sums.
fn opaque(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ P[0].x);
}

fn f_inf() -> f32 {
    return bitcast<f32>(INF_BITS);
}

fn f_nan() -> f32 {
    return bitcast<f32>(NAN_BITS);
}

fn f_abs(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
}

fn f_neg(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u);
}

fn f_is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn f_is_inf(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn f_is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
}

// x's magnitude with s's sign.
fn f_copysign(x: f32, s: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(s) & 0x80000000u));
}

// By bits, since a device may flush the smallest numbers to 0.
fn f_is_zero(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0u;
}

// True for zero, too.
fn f_is_subnormal(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) < 0x00800000u;
}

// The magnitude of a subnormal number in units of 2^-149, for devices that flush the number itself to 0.
fn f_units(x: f32) -> f32 {
    return f32(bitcast<u32>(x) & 0x7fffffffu);
}

// The number with this many units of 2^-149, fewer than 2^24, rounded to whole units.
fn f_from_units(units: f32) -> f32 {
    return bitcast<f32>(u32(round(units)));
}

fn f_max(a: f32, b: f32) -> f32 {
    if (f_is_nan(a)) { return a; }
    if (f_is_nan(b)) { return b; }
    return select(b, a, a > b);
}

fn f_min(a: f32, b: f32) -> f32 {
    if (f_is_nan(a)) { return a; }
    if (f_is_nan(b)) { return b; }
    return select(b, a, a < b);
}

fn f_relu(x: f32) -> f32 {
    return select(0.0, x, bitcast<i32>(x) > 0 || f_is_nan(x));
}

fn f_sign(x: f32) -> f32 {
    return select(select(0.0, 1.0, x > 0.0), -1.0, x < 0.0);
}

// Whether a number is integral because of its size; also true for infinities and NaN.
fn f_whole(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) >= 0x4b000000u;
}

fn f_floor(x: f32) -> f32 {
    if (f_whole(x)) { return x; }
    return f_copysign(floor(x), x);
}

fn f_ceil(x: f32) -> f32 {
    if (f_whole(x)) { return x; }
    return f_copysign(ceil(x), x);
}

fn f_trunc(x: f32) -> f32 {
    if (f_whole(x)) { return x; }
    return f_copysign(trunc(x), x);
}

// Adding and subtracting 2^23 would do, if no compiler simplified it.
fn f_round(x: f32) -> f32 {
    if (f_whole(x)) { return x; }
    let a = f_abs(x);
    let below = trunc(a);
    let rest = a - below;
    let odd = (u32(below) & 1u) == 1u;
    let up = rest > 0.5 || (rest == 0.5 && odd);
    return f_copysign(below + select(0.0, 1.0, up), x);
}

fn f16_load(h: u32) -> f32 {
    let s = (h & 0x8000u) << 16u;
    let e = (h >> 10u) & 31u;
    let m = h & 0x3ffu;
    if (e == 0u) {
        return bitcast<f32>(bitcast<u32>(f32(m) * 5.9604644775390625e-8) | s);
    }
    if (e == 31u) {
        return bitcast<f32>(s | INF_BITS | (m << 13u));
    }
    return bitcast<f32>(s | ((e + 112u) << 23u) | (m << 13u));
}

// Rounds to the nearest, ties to even.
fn f16_bits(f: f32) -> u32 {
    let x = bitcast<u32>(f);
    let s = (x >> 16u) & 0x8000u;
    let a = x & 0x7fffffffu;
    if (a > 0x7f800000u) { return s | 0x7e00u; }
    if (a >= 0x477ff000u) { return s | 0x7c00u; }
    if (a >= 0x38800000u) {
        return s | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u);
    }
    if (a < 0x33000000u) { return s; }
    let m = (a & 0x7fffffu) | 0x800000u;
    let shift = 126u - (a >> 23u);
    let q = m >> shift;
    let rest = m & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return s | (q + select(0u, 1u, rest > half || (rest == half && (q & 1u) == 1u)));
}

fn f16_round(f: f32) -> f32 {
    return f16_load(f16_bits(f));
}

fn bf16_load(h: u32) -> f32 {
    return bitcast<f32>(h << 16u);
}

fn bf16_bits(f: f32) -> u32 {
    let x = bitcast<u32>(f);
    if (f_is_nan(f)) { return (x >> 16u) | 0x40u; }
    return (x + 0x7fffu + ((x >> 16u) & 1u)) >> 16u;
}

fn bf16_round(f: f32) -> f32 {
    return bf16_load(bf16_bits(f));
}

// Saturates; NaN becomes 0.
fn f_to_i32(x: f32) -> i32 {
    if (f_is_nan(x)) { return 0; }
    if (x >= 2147483648.0) { return 2147483647; }
    if (x <= -2147483648.0) { return -2147483647 - 1; }
    return i32(x);
}

fn f_to_u8(x: f32) -> u32 {
    if (f_is_nan(x) || x <= 0.0) { return 0u; }
    if (x >= 255.0) { return 255u; }
    return u32(x);
}
