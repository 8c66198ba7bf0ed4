// Storage types, the types of computation, and the conversions between them. No headers, so that none has to be found.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
// Any byte except 0 counts as true, so any byte from the host is valid.
struct boole { u8 bits; };

#define INFINITE_F32 __uint_as_float(0x7f800000u)
#define NAN_F32 __uint_as_float(0x7fffffffu)

// How a number is stored and computed with.
template<class T> struct Number {
    typedef T C;
    static __device__ __forceinline__ C get(T x) { return x; }
    static __device__ __forceinline__ T put(C x) { return x; }
};

static __device__ __forceinline__ f32 widen_half(u16 bits) {
#ifdef __CUDA_ARCH__
    f32 out;
    asm("{ cvt.f32.f16 %0, %1; }" : "=f"(out) : "h"(bits));
    return out;
#else
    const u32 sign = (u32)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, digits = bits & 1023;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | digits << 13);
    if (exponent == 0) {
        const f32 small = (f32)digits * 5.9604644775390625e-8f;
        return sign ? -small : small;
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | digits << 13);
#endif
}

static __device__ __forceinline__ u16 narrow_half(f32 x) {
#ifdef __CUDA_ARCH__
    u16 out;
    asm("{ cvt.rn.f16.f32 %0, %1; }" : "=h"(out) : "f"(x));
    return out;
#else
    const u32 bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (u16)(sign | 0x7e00);
    if (size >= 0x477ff000u) return (u16)(sign | 0x7c00);
    if (size < 0x33000001u) return (u16)sign;
    if (size < 0x38800000u) {
        const u32 shift = 126 - (size >> 23), digits = (size & 0x7fffffu) | 0x800000u;
        const u32 kept = digits >> shift, rest = digits & ((1u << shift) - 1), middle = 1u << (shift - 1);
        return (u16)(sign | (kept + (rest > middle || (rest == middle && (kept & 1)))));
    }
    const u32 even = (size >> 13) & 1;
    return (u16)(sign | ((size - 0x38000000u + 0xfffu + even) >> 13));
#endif
}

static __device__ __forceinline__ f32 widen_brain(u16 bits) { return __uint_as_float((u32)bits << 16); }

static __device__ __forceinline__ u16 narrow_brain(f32 x) {
    const u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// Converts to f32, rounding to odd, so that a second rounding gives the same result as rounding once.
static __device__ __forceinline__ f32 to_odd(f64 x) {
    const f32 near = (f32)x;
    if (near != near || (f64)near == x) return near;
    u32 bits = __float_as_uint(near);
    if ((bits & 0x7fffffffu) == 0x7f800000u) return near;
    const f64 size = x < 0 ? -x : x, got = near < 0 ? -(f64)near : (f64)near;
    if (got > size) bits -= 1;
    return __uint_as_float(bits | 1);
}

template<> struct Number<f16> {
    typedef f32 C;
    static __device__ __forceinline__ C get(f16 x) { return widen_half(x.bits); }
    static __device__ __forceinline__ f16 put(C x) { f16 out; out.bits = narrow_half(x); return out; }
};
template<> struct Number<bf16> {
    typedef f32 C;
    static __device__ __forceinline__ C get(bf16 x) { return widen_brain(x.bits); }
    static __device__ __forceinline__ bf16 put(C x) { bf16 out; out.bits = narrow_brain(x); return out; }
};
template<> struct Number<boole> {
    typedef bool C;
    static __device__ __forceinline__ C get(boole x) { return x.bits != 0; }
    static __device__ __forceinline__ boole put(C x) { boole out; out.bits = x; return out; }
};

// A result as it would be after storing and loading it.
template<class T> static __device__ __forceinline__ typename Number<T>::C rounded(typename Number<T>::C x) {
    return Number<T>::get(Number<T>::put(x));
}

// Conversions like Rust's `as`: floats to integers saturate, and NaN becomes 0.
template<class To> struct Cast {
    template<class C> static __device__ __forceinline__ To from(C x) { return (To)x; }
};
static __device__ __forceinline__ i64 saturated(f64 x, f64 low, f64 high, i64 lowest, i64 highest) {
    if (x != x) return 0;
    if (x <= low) return lowest;
    if (x >= high) return highest;
    return (i64)x;
}
template<> struct Cast<u8> {
    template<class C> static __device__ __forceinline__ u8 from(C x) { return (u8)x; }
    static __device__ __forceinline__ u8 from(f32 x) { return (u8)saturated(x, 0., 255., 0, 255); }
    static __device__ __forceinline__ u8 from(f64 x) { return (u8)saturated(x, 0., 255., 0, 255); }
};
template<> struct Cast<i32> {
    template<class C> static __device__ __forceinline__ i32 from(C x) { return (i32)x; }
    static __device__ __forceinline__ i32 from(f64 x) {
        return (i32)saturated(x, -2147483648., 2147483647., -2147483647 - 1, 2147483647);
    }
    static __device__ __forceinline__ i32 from(f32 x) { return from((f64)x); }
};
template<> struct Cast<i64> {
    template<class C> static __device__ __forceinline__ i64 from(C x) { return (i64)x; }
    static __device__ __forceinline__ i64 from(f64 x) {
        return saturated(x, -9223372036854775808., 9223372036854775808., -9223372036854775807ll - 1, 9223372036854775807ll);
    }
    static __device__ __forceinline__ i64 from(f32 x) { return from((f64)x); }
};
template<> struct Cast<boole> {
    template<class C> static __device__ __forceinline__ bool from(C x) { return x != 0; }
};
template<> struct Cast<f16> {
    template<class C> static __device__ __forceinline__ f32 from(C x) { return rounded<f16>(to_odd((f64)x)); }
    static __device__ __forceinline__ f32 from(f32 x) { return rounded<f16>(x); }
};
template<> struct Cast<bf16> {
    template<class C> static __device__ __forceinline__ f32 from(C x) { return rounded<bf16>(to_odd((f64)x)); }
    static __device__ __forceinline__ f32 from(f32 x) { return rounded<bf16>(x); }
};

static __device__ __forceinline__ bool is_nan(f32 x) { return x != x; }
static __device__ __forceinline__ bool is_nan(f64 x) { return x != x; }
template<class C> static __device__ __forceinline__ bool is_nan(C) { return false; }
static __device__ __forceinline__ bool is_finite(f32 x) { return fabsf(x) < INFINITE_F32; }
static __device__ __forceinline__ bool is_finite(f64 x) { return fabs(x) < (f64)INFINITE_F32; }
template<class C> static __device__ __forceinline__ bool is_finite(C) { return true; }

// The offset of the `i`-th element of a shape in row-major order.
template<int R> static __device__ __forceinline__ i64 place(u64 i, const i64* dims, const i64* strides) {
    i64 at = 0;
#pragma unroll
    for (int d = R - 1; d > 0; --d) {
        const u64 next = i / (u64)dims[d];
        at += (i64)(i - next * (u64)dims[d]) * strides[d];
        i = next;
    }
    return at + (i64)i * strides[0];
}

#define FIRST ((u64)blockIdx.x * BLOCK + threadIdx.x)
