// Philox-4x32 with ten rounds, as in core's `random.rs`. KIND 0: uniform, 1: Bernoulli, 2: integers.
struct Args {
    T* output;
    u64 count, seed, offset;
    f64 low, high;
    i64 from;
    u64 span;
};

static __device__ __forceinline__ f32 below(f32 x) {
    const u32 bits = __float_as_uint(x);
    return x == 0 ? __uint_as_float(0x80000001u) : __uint_as_float(x > 0 ? bits - 1 : bits + 1);
}
static __device__ __forceinline__ f64 below(f64 x) {
    const i64 bits = __double_as_longlong(x);
    return x == 0 ? __longlong_as_double((i64)0x8000000000000001ull) : __longlong_as_double(x > 0 ? bits - 1 : bits + 1);
}

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    const u64 i = FIRST;
    if (i >= args.count) return;
    const u64 counter = args.offset + i;
    u32 key0 = (u32)args.seed, key1 = (u32)(args.seed >> 32);
    u32 s0 = (u32)counter, s1 = (u32)(counter >> 32), s2 = 0, s3 = 0;
    for (int round = 0; round < 10; ++round) {
        const u64 a = (u64)s0 * 0xD2511F53u, b = (u64)s2 * 0xCD9E8D57u;
        s0 = (u32)(b >> 32) ^ s1 ^ key0;
        s1 = (u32)b;
        s2 = (u32)(a >> 32) ^ s3 ^ key1;
        s3 = (u32)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    const u64 bits = (u64)s0 << 32 | s1;
    const f64 unit = (f64)(bits >> 11) * (1.0 / 9007199254740992.0);
#if KIND == 0
    const f64 value = args.low + unit * (args.high - args.low);
#elif KIND == 1
    const f64 value = unit < args.low ? 1.0 : 0.0;
#else
    const f64 value = (f64)(i64)((u64)args.from + __umul64hi(bits, args.span));
#endif
    Number<T>::C out = Cast<T>::from(value);
#if BOUNDED
    // A result that is rounded up to the bound becomes the largest number below it.
    if (args.high > args.low && (f64)out >= args.high) out = below((Number<T>::C)args.high);
#endif
    args.output[i] = Number<T>::put(out);
}
