//! AArch64 with NEON.

use std::arch::aarch64::*;

use super::{Kernel, Lanes, Simd};

/// Registers of four f32. Only [`run`] makes this token.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

/// Registers of two f64.
#[derive(Clone, Copy)]
pub(super) struct NeonDouble(());

/// # Safety
/// The CPU must have NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Neon(()))
}

// SAFETY of every intrinsic below: a token exists only where `run` was called, whose contract is that the CPU has NEON.

macro_rules! lanes {
    ($token:ident $float:ident $vector:ident $n:literal $splat:ident $load:ident $store:ident $add:ident $sub:ident
     $mul:ident $div:ident $fma:ident $max:ident $min:ident $sum:ident) => {
        impl Lanes for $token {
            type T = $float;
            type V = $vector;
            const N: usize = $n;
            const REGISTERS: usize = 32;

            #[inline(always)]
            fn splat(self, x: $float) -> $vector {
                // SAFETY: see above.
                unsafe { $splat(x) }
            }

            #[inline(always)]
            unsafe fn load(self, from: *const $float) -> $vector {
                // SAFETY: see above; the address by the caller.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $float, v: $vector) {
                // SAFETY: see above; the address by the caller.
                unsafe { $store(to, v) }
            }

            #[inline(always)]
            unsafe fn load_part(self, from: *const $float, n: usize) -> $vector {
                let mut lanes = [0.0; $n];
                for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                    // SAFETY: the caller guarantees that `n` elements are readable.
                    *lane = unsafe { from.add(i).read() };
                }
                // SAFETY: see above; the array is one register long.
                unsafe { $load(lanes.as_ptr()) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $float, n: usize, v: $vector) {
                let mut lanes = [0.0; $n];
                // SAFETY: see above; the array is one register long.
                unsafe { $store(lanes.as_mut_ptr(), v) };
                for (i, &lane) in lanes.iter().enumerate().take(n) {
                    // SAFETY: the caller guarantees that `n` elements are writable.
                    unsafe { to.add(i).write(lane) };
                }
            }

            #[inline(always)]
            fn add(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: see above.
                unsafe { $add(a, b) }
            }

            #[inline(always)]
            fn sub(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: see above.
                unsafe { $sub(a, b) }
            }

            #[inline(always)]
            fn mul(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: see above.
                unsafe { $mul(a, b) }
            }

            #[inline(always)]
            fn div(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: see above.
                unsafe { $div(a, b) }
            }

            #[inline(always)]
            fn mul_add(self, a: $vector, b: $vector, c: $vector) -> $vector {
                // SAFETY: see above. The addend is the first operand here.
                unsafe { $fma(c, a, b) }
            }

            #[inline(always)]
            fn max(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: see above.
                unsafe { $max(a, b) }
            }

            #[inline(always)]
            fn min(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: see above.
                unsafe { $min(a, b) }
            }

            #[inline(always)]
            fn sum(self, v: $vector) -> $float {
                // SAFETY: see above.
                unsafe { $sum(v) }
            }
        }
    };
}

lanes!(Neon f32 float32x4_t 4 vdupq_n_f32 vld1q_f32 vst1q_f32 vaddq_f32 vsubq_f32
       vmulq_f32 vdivq_f32 vfmaq_f32 vmaxq_f32 vminq_f32 vaddvq_f32);
lanes!(NeonDouble f64 float64x2_t 2 vdupq_n_f64 vld1q_f64 vst1q_f64 vaddq_f64 vsubq_f64
       vmulq_f64 vdivq_f64 vfmaq_f64 vmaxq_f64 vminq_f64 vaddvq_f64);

impl Simd for Neon {
    type I = int32x4_t;
    type M = uint32x4_t;
    type Double = NeonDouble;

    #[inline(always)]
    fn double(self) -> NeonDouble {
        NeonDouble(())
    }

    #[inline(always)]
    fn sqrt(self, v: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vsqrtq_f32(v) }
    }

    #[inline(always)]
    fn round(self, v: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vrndnq_f32(v) }
    }

    #[inline(always)]
    fn to_int(self, v: float32x4_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { vcvtnq_s32_f32(v) }
    }

    #[inline(always)]
    fn from_int(self, i: int32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vcvtq_f32_s32(i) }
    }

    #[inline(always)]
    fn bits(self, v: float32x4_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { vreinterpretq_s32_f32(v) }
    }

    #[inline(always)]
    fn from_bits(self, i: int32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vreinterpretq_f32_s32(i) }
    }

    #[inline(always)]
    fn splat_int(self, i: i32) -> int32x4_t {
        // SAFETY: see above.
        unsafe { vdupq_n_s32(i) }
    }

    #[inline(always)]
    fn add_int(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { vaddq_s32(a, b) }
    }

    #[inline(always)]
    fn sub_int(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { vsubq_s32(a, b) }
    }

    #[inline(always)]
    fn and_int(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { vandq_s32(a, b) }
    }

    #[inline(always)]
    fn xor_int(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { veorq_s32(a, b) }
    }

    #[inline(always)]
    fn shl<const BY: i32>(self, i: int32x4_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { vshlq_s32(i, vdupq_n_s32(BY)) }
    }

    #[inline(always)]
    fn shr<const BY: i32>(self, i: int32x4_t) -> int32x4_t {
        // SAFETY: see above. A left shift by a negative count is a right shift.
        unsafe { vshlq_s32(i, vdupq_n_s32(-BY)) }
    }

    #[inline(always)]
    fn evens(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vuzp1q_f32(a, b) }
    }

    #[inline(always)]
    fn lt(self, a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        // SAFETY: see above.
        unsafe { vcltq_f32(a, b) }
    }

    #[inline(always)]
    fn eq(self, a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        // SAFETY: see above.
        unsafe { vceqq_f32(a, b) }
    }

    #[inline(always)]
    fn eq_int(self, a: int32x4_t, b: int32x4_t) -> uint32x4_t {
        // SAFETY: see above.
        unsafe { vceqq_s32(a, b) }
    }

    #[inline(always)]
    fn select(self, mask: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vbslq_f32(mask, a, b) }
    }

    #[inline(always)]
    fn any(self, mask: uint32x4_t) -> bool {
        // SAFETY: see above.
        unsafe { vmaxvq_u32(mask) != 0 }
    }

    #[inline(always)]
    fn max_lane(self, v: float32x4_t) -> f32 {
        // SAFETY: see above.
        unsafe { vmaxvq_f32(v) }
    }
}
