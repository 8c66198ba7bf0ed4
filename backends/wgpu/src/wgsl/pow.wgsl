// Powers, by logarithms with double the digits.

// ln a for positive, finite a, as a number and its rounding error.
fn log_pair(a: f32) -> vec2<f32> {
    var at = bitcast<u32>(a);
    var offset = 0.0;
    if (at < 0x00800000u) { at = bitcast<u32>(f32(at)); offset = -149.0; }
    let ei = bitcast<i32>(at - 0x3f3504f3u) >> 23u;
    let m = bitcast<f32>(at - bitcast<u32>(ei << 23u));
    let e = f32(ei) + offset;
    // q = (m - 1) / (m + 1)
    let f = m - 1.0;
    let g = opaque(m + 1.0);
    let g_low = m - opaque(g - 1.0);
    let q = opaque(f / g);
    let back = opaque(q * g);
    let q_low = (((f - back) - mul_err(q, g, back)) - q * g_low) / g;
    // s = q², c = 1/3 + s/5 + s²/7 + …
    let s = opaque(q * q);
    let s_low = mul_err(q, q, s) + 2.0 * q * q_low;
    let tail = s * (0.2 + s * (0.14285715 + s * (0.11111111 + s * (0.09090909 + s * 0.07692308)))) - 9.934107462565104e-9;
    let c = opaque(0.3333333432674408 + tail);
    let c_low = opaque(0.3333333432674408 - c) + tail;
    let p = opaque(s * c);
    let p_low = mul_err(s, c, p) + s * c_low + s_low * c;
    // q (1 + s c), times two
    let t = opaque(q * p);
    let t_low = mul_err(q, p, t) + q * p_low + q_low * p;
    let u = opaque(q + t);
    let u_low = opaque(q - u) + t + (q_low + t_low);
    let n = opaque(e * 0.693359375);
    let h = opaque(n + 2.0 * u);
    var low = opaque(n - h) + 2.0 * u;
    if (e == 0.0) { low = 0.0; }
    low = low + (opaque(e * -0.00021219253540039062) + opaque(e * -1.9046542121259336e-9 + 2.0 * u_low));
    let sum = opaque(h + low);
    return vec2<f32>(sum, opaque(h - sum) + low);
}

// e^(high + low).
fn exp_pair(high: f32, low: f32) -> f32 {
    if (high > 90.0) { return f_inf(); }
    if (high < -105.0) { return 0.0; }
    let n = round(high * 1.44269504);
    let first = opaque(high - opaque(n * 0.693359375));
    let second = low + (opaque(n * 0.00021219253540039062) + opaque(n * 1.9046542121259336e-9));
    let r = opaque(first + second);
    let lost = opaque(first - r) + second;
    let p = (((0.001381459 * r + 0.008368717) * r + 0.04166839) * r + 0.16666521) * r + 0.49999994;
    let y = opaque(opaque(p * (r * r) + lost) + r) + 1.0;
    let k = i32(n);
    let half = k >> 1u;
    return (y * pow2i(half)) * pow2i(k - half);
}

fn p_pow(x: f32, y: f32) -> f32 {
    if (f_is_zero(y) || x == 1.0) { return 1.0; }
    if (f_is_nan(x) || f_is_nan(y)) { return f_nan(); }
    let ax = f_abs(x);
    let ay = f_abs(y);
    let whole = f_whole(y) || trunc(y) == y;
    let odd = whole && ay < 16777216.0 && (u32(min(ay, 16777216.0)) & 1u) == 1u;
    let negative = bitcast<u32>(x) >= 0x80000000u;
    var r = 0.0;
    if (f_is_zero(x)) {
        r = select(f_inf(), 0.0, y > 0.0);
    } else if (f_is_inf(x)) {
        r = select(0.0, f_inf(), y > 0.0);
    } else if (negative && !whole) {
        r = f_nan();
    } else if (ax == 1.0) {
        r = 1.0;
    } else if (f_is_inf(y)) {
        r = select(0.0, f_inf(), (ax > 1.0) == (y > 0.0));
    } else {
        let l = log_pair(ax);
        let t = opaque(y * l.x);
        if (f_abs(t) > 150.0) {
            r = select(0.0, f_inf(), t > 0.0);
        } else {
            r = exp_pair(t, mul_err(y, l.x, t) + y * l.y);
        }
    }
    return select(r, -r, negative && odd);
}
