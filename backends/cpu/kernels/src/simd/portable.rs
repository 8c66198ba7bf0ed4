//! A single lane, for machines without vector instructions that are supported here.

use super::{Kernel, Lanes, Simd};

/// Registers of one element.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Not inlined, so that all callers share one copy of a kernel.
#[inline(never)]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Portable)
}

/// Registers of one f64.
#[derive(Clone, Copy)]
pub(super) struct PortableDouble;

macro_rules! lanes {
    ($token:ident $float:ident) => {
        impl Lanes for $token {
            type T = $float;
            type V = $float;
            const N: usize = 1;
            const REGISTERS: usize = 8;

            #[inline(always)]
            fn splat(self, x: $float) -> $float {
                x
            }

            #[inline(always)]
            unsafe fn load(self, from: *const $float) -> $float {
                // SAFETY: by the caller.
                unsafe { from.read() }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $float, v: $float) {
                // SAFETY: by the caller.
                unsafe { to.write(v) }
            }

            #[inline(always)]
            unsafe fn load_part(self, from: *const $float, n: usize) -> $float {
                // SAFETY: by the caller.
                if n == 0 { 0.0 } else { unsafe { from.read() } }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $float, n: usize, v: $float) {
                if n > 0 {
                    // SAFETY: by the caller.
                    unsafe { to.write(v) }
                }
            }

            #[inline(always)]
            fn add(self, a: $float, b: $float) -> $float {
                a + b
            }

            #[inline(always)]
            fn sub(self, a: $float, b: $float) -> $float {
                a - b
            }

            #[inline(always)]
            fn mul(self, a: $float, b: $float) -> $float {
                a * b
            }

            #[inline(always)]
            fn div(self, a: $float, b: $float) -> $float {
                a / b
            }

            #[inline(always)]
            fn mul_add(self, a: $float, b: $float, c: $float) -> $float {
                fused(a, b, c)
            }

            #[inline(always)]
            fn max(self, a: $float, b: $float) -> $float {
                if a > b { a } else { b }
            }

            #[inline(always)]
            fn min(self, a: $float, b: $float) -> $float {
                if a < b { a } else { b }
            }

            #[inline(always)]
            fn sum(self, v: $float) -> $float {
                v
            }
        }
    };
}

mod single {
    use super::{Lanes, Portable};

    /// The product of two f32 is exact in f64, so this equals a fused operation except for double rounding. The library
    /// function that replaces the missing instruction is several times slower.
    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        (f64::from(a) * f64::from(b) + f64::from(c)) as f32
    }

    lanes!(Portable f32);
}

mod double {
    use super::{Lanes, PortableDouble};

    /// Rounded twice: nothing in f64 relies on fusion.
    #[inline(always)]
    fn fused(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }

    lanes!(PortableDouble f64);
}

impl Simd for Portable {
    type I = i32;
    type M = bool;
    type Double = PortableDouble;

    #[inline(always)]
    fn double(self) -> PortableDouble {
        PortableDouble
    }

    #[inline(always)]
    fn sqrt(self, v: f32) -> f32 {
        v.sqrt()
    }

    #[inline(always)]
    fn round(self, v: f32) -> f32 {
        v.round_ties_even()
    }

    #[inline(always)]
    fn to_int(self, v: f32) -> i32 {
        v.round_ties_even() as i32
    }

    #[inline(always)]
    fn from_int(self, i: i32) -> f32 {
        i as f32
    }

    #[inline(always)]
    fn bits(self, v: f32) -> i32 {
        v.to_bits().cast_signed()
    }

    #[inline(always)]
    fn from_bits(self, i: i32) -> f32 {
        f32::from_bits(i.cast_unsigned())
    }

    #[inline(always)]
    fn splat_int(self, i: i32) -> i32 {
        i
    }

    #[inline(always)]
    fn add_int(self, a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn sub_int(self, a: i32, b: i32) -> i32 {
        a.wrapping_sub(b)
    }

    #[inline(always)]
    fn and_int(self, a: i32, b: i32) -> i32 {
        a & b
    }

    #[inline(always)]
    fn xor_int(self, a: i32, b: i32) -> i32 {
        a ^ b
    }

    #[inline(always)]
    fn shl<const BY: i32>(self, i: i32) -> i32 {
        i << BY
    }

    #[inline(always)]
    fn shr<const BY: i32>(self, i: i32) -> i32 {
        i >> BY
    }

    #[inline(always)]
    fn evens(self, a: f32, _: f32) -> f32 {
        a
    }

    #[inline(always)]
    fn lt(self, a: f32, b: f32) -> bool {
        a < b
    }

    #[inline(always)]
    fn eq(self, a: f32, b: f32) -> bool {
        a == b
    }

    #[inline(always)]
    fn eq_int(self, a: i32, b: i32) -> bool {
        a == b
    }

    #[inline(always)]
    fn select(self, mask: bool, a: f32, b: f32) -> f32 {
        if mask { a } else { b }
    }

    #[inline(always)]
    fn any(self, mask: bool) -> bool {
        mask
    }

    #[inline(always)]
    fn max_lane(self, v: f32) -> f32 {
        v
    }
}
