// Random words, and 64-bit integers as two words, the lower one first, so that no device needs 64-bit integers.

// The product of two words, computed from their halves.
fn u32_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let left = (a >> 16u) * (b & 0xffffu);
    let right = (a & 0xffffu) * (b >> 16u);
    let middle = (low >> 16u) + (left & 0xffffu) + (right & 0xffffu);
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (left >> 16u) + (right >> 16u) + (middle >> 16u));
}

fn u64_sum(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn u64_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// The upper half of the product.
fn u64_product_high(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let inner = u64_sum(u32_product(a.x, b.y), vec2<u32>(u32_product(a.x, b.x).y, 0u));
    let outer = u64_sum(u32_product(a.y, b.x), vec2<u32>(inner.x, 0u));
    return u64_sum(u64_sum(u32_product(a.y, b.y), vec2<u32>(inner.y, 0u)), vec2<u32>(outer.y, 0u));
}

// Rounds to the nearest, ties to even.
fn u64_to_f32(x: vec2<u32>) -> f32 {
    if (x.x == 0u && x.y == 0u) { return 0.0; }
    var high = x.y;
    var low = x.x;
    var shift = 0u;
    if (high == 0u) {
        high = low;
        low = 0u;
        shift = 32u;
    }
    let zeros = countLeadingZeros(high);
    if (zeros > 0u) {
        high = (high << zeros) | (low >> (32u - zeros));
        low = low << zeros;
    }
    let rest = high & 255u;
    let up = rest > 128u || (rest == 128u && (low != 0u || (high & 256u) != 0u));
    // The leading bit and the carry of rounding are added to the exponent.
    return bitcast<f32>(((189u - shift - zeros) << 23u) + (high >> 8u) + select(0u, 1u, up));
}

// Philox-4x32 with ten rounds, as in core's `random.rs`: two of its four words.
fn philox(seed: vec2<u32>, counter: vec2<u32>) -> vec2<u32> {
    var key = seed;
    var state = vec4<u32>(counter, 0u, 0u);
    for (var round = 0u; round < 10u; round++) {
        let a = u32_product(state.x, 0xd2511f53u);
        let b = u32_product(state.z, 0xcd9e8d57u);
        state = vec4<u32>(b.y ^ state.y ^ key.x, b.x, a.y ^ state.w ^ key.y, a.x);
        key = key + vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return vec2<u32>(state.y, state.x);
}
