// Functions that the table of ops uses in addition to CUDA's own.
template<class C> static __device__ __forceinline__ C sign_of(C x) { return (C)((x > 0) - (x < 0)); }
template<class C> static __device__ __forceinline__ C larger(C a, C b) { return a > b || is_nan(a) ? a : b; }
template<class C> static __device__ __forceinline__ C smaller(C a, C b) { return a < b || is_nan(a) ? a : b; }

// Written so that e^-x cannot overflow.
static __device__ __forceinline__ f32 sigmoid(f32 x) {
    const f32 e = expf(-fabsf(x));
    return (x >= 0 ? 1.0f : e) / (1.0f + e);
}
static __device__ __forceinline__ f64 sigmoid(f64 x) {
    const f64 e = exp(-fabs(x));
    return (x >= 0 ? 1.0 : e) / (1.0 + e);
}

static __device__ __forceinline__ f32 floored(f32 a, f32 b) {
    const f32 rest = fmodf(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static __device__ __forceinline__ f64 floored(f64 a, f64 b) {
    const f64 rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Integers wrap: sums and products are computed in u64, where overflow is defined.
template<class C> static __device__ __forceinline__ C wrap_add(C a, C b) { return (C)((u64)a + (u64)b); }
template<class C> static __device__ __forceinline__ C wrap_sub(C a, C b) { return (C)((u64)a - (u64)b); }
template<class C> static __device__ __forceinline__ C wrap_mul(C a, C b) { return (C)((u64)a * (u64)b); }
template<class C> static __device__ __forceinline__ C quotient(C a, C b) {
    if (b == 0) return 0;
    if (b == (C)-1) return wrap_sub((C)0, a);
    return (C)(a / b);
}
static __device__ __forceinline__ u8 quotient(u8 a, u8 b) { return b == 0 ? 0 : (u8)(a / b); }
template<class C> static __device__ __forceinline__ C floored(C a, C b) {
    if (b == 0 || b == (C)-1) return 0;
    const C rest = (C)(a % b);
    return rest != 0 && (rest < 0) != (b < 0) ? (C)(rest + b) : rest;
}
static __device__ __forceinline__ u8 floored(u8 a, u8 b) { return b == 0 ? 0 : (u8)(a % b); }
template<class C> static __device__ __forceinline__ C int_pow(C base, C exponent) {
    if (exponent < 0) {
        if (base == 1) return 1;
        return base == (C)-1 ? (C)(1 - 2 * (exponent & 1)) : (C)0;
    }
    u64 result = 1, square = (u64)base, rest = (u64)exponent;
    while (rest > 0) {
        if (rest & 1) result *= square;
        square *= square;
        rest >>= 1;
    }
    return (C)result;
}
