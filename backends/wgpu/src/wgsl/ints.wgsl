// Integers: they wrap, a division by 0 gives 0, and a remainder has the divisor's sign.

fn i32_div(a: i32, b: i32) -> i32 {
    if (b == 0) { return 0; }
    if (b == -1) { return bitcast<i32>(0u - bitcast<u32>(a)); }
    return a / b;
}

fn i32_rem(a: i32, b: i32) -> i32 {
    if (b == 0 || b == -1) { return 0; }
    let rest = a % b;
    return select(rest, rest + b, rest != 0 && ((rest < 0) != (b < 0)));
}

fn i32_pow(base: i32, exponent: i32) -> i32 {
    var rest = exponent;
    if (exponent < 0) {
        if (base != 1 && base != -1) { return 0; }
        rest = exponent & 1;
    }
    var product = 1;
    var square = base;
    while (rest > 0) {
        if ((rest & 1) == 1) { product = product * square; }
        square = square * square;
        rest = rest >> 1u;
    }
    return product;
}

fn u8_div(a: u32, b: u32) -> u32 {
    if (b == 0u) { return 0u; }
    return a / b;
}

fn u8_rem(a: u32, b: u32) -> u32 {
    if (b == 0u) { return 0u; }
    return a % b;
}

fn u8_pow(base: u32, exponent: u32) -> u32 {
    var rest = exponent;
    var product = 1u;
    var square = base;
    while (rest > 0u) {
        if ((rest & 1u) == 1u) { product = product * square; }
        square = square * square;
        rest = rest >> 1u;
    }
    return product & 255u;
}

fn i64_join(low: u32, high: u32) -> i64 {
    return bitcast<i64>(u64(low) | (u64(high) << 32u));
}

fn i64_low(x: i64) -> u32 {
    return u32(bitcast<u64>(x) & 0xfffffffflu);
}

fn i64_high(x: i64) -> u32 {
    return u32(bitcast<u64>(x) >> 32u);
}

fn i64_div(a: i64, b: i64) -> i64 {
    if (b == 0li) { return 0li; }
    if (b == -1li) { return bitcast<i64>(0lu - bitcast<u64>(a)); }
    return a / b;
}

fn i64_rem(a: i64, b: i64) -> i64 {
    if (b == 0li || b == -1li) { return 0li; }
    let rest = a % b;
    return select(rest, rest + b, rest != 0li && ((rest < 0li) != (b < 0li)));
}

fn i64_pow(base: i64, exponent: i64) -> i64 {
    var rest = exponent;
    if (exponent < 0li) {
        if (base != 1li && base != -1li) { return 0li; }
        rest = exponent & 1li;
    }
    var product = 1li;
    var square = base;
    while (rest > 0li) {
        if ((rest & 1li) == 1li) { product = product * square; }
        square = square * square;
        rest = rest >> 1u;
    }
    return product;
}

fn f_to_i64(x: f32) -> i64 {
    if (f_is_nan(x)) { return 0li; }
    if (x >= 9223372036854775808.0) { return i64_join(0xffffffffu, 0x7fffffffu); }
    if (x <= -9223372036854775808.0) { return i64_join(0u, 0x80000000u); }
    return i64(x);
}
