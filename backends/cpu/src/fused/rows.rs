//! What softmax and its relatives do to a row of f32.

use crate::math::exp::exp;
use crate::simd::{Kernel, Level, Simd};

/// The largest element. A NaN may get lost, and then is found by [`exp_shifted`].
///
/// # Safety
/// `n > 0` elements must be readable at `x`.
pub(super) unsafe fn largest(level: Level, x: *const f32, n: usize) -> f32 {
    struct Largest(*const f32, usize);

    impl Kernel for Largest {
        type Out = f32;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f32 {
            let Self(x, n) = self;
            let whole = n - n % S::N;
            // SAFETY: all offsets stay below `n`.
            unsafe {
                let mut top = s.splat(f32::NEG_INFINITY);
                for i in (0..whole).step_by(S::N) {
                    top = s.max(s.load(x.add(i)), top);
                }
                (whole..n).fold(s.max_lane(top), |top, i| top.max(*x.add(i)))
            }
        }
    }

    level.run(Largest(x, n))
}

/// Writes `e^(x - shift)` unless `to` is null, and gives the sum.
///
/// # Safety
/// `n` elements must be readable at `x`, and writable at `to`, which may be `x`.
pub(super) unsafe fn exp_shifted(level: Level, x: *const f32, shift: f32, to: *mut f32, n: usize) -> f32 {
    struct ExpShifted(*const f32, f32, *mut f32, usize);

    impl Kernel for ExpShifted {
        type Out = f32;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f32 {
            let Self(x, shift, to, n) = self;
            let (whole, shift) = (n - n % S::N, s.splat(shift));
            let mut total = s.splat(0.0);
            // SAFETY: all offsets stay below `n`.
            unsafe {
                for i in (0..whole).step_by(S::N) {
                    let y = exp(s, s.sub(s.load(x.add(i)), shift));
                    total = s.add(total, y);
                    if !to.is_null() {
                        s.store(to.add(i), y);
                    }
                }
                let left = n - whole;
                if left == 0 {
                    return s.sum(total);
                }
                let mut last = [0.0; 16];
                s.store(last.as_mut_ptr(), exp(s, s.sub(s.load_part(x.add(whole), left), shift)));
                if !to.is_null() {
                    std::ptr::copy_nonoverlapping(last.as_ptr(), to.add(whole), left);
                }
                s.sum(total) + last[..left].iter().sum::<f32>()
            }
        }
    }

    level.run(ExpShifted(x, shift, to, n))
}

/// The sum of `a b`, or of `a` where `b` is null.
///
/// # Safety
/// `n` elements must be readable at `a`, and at `b`.
pub(super) unsafe fn dot(level: Level, a: *const f32, b: *const f32, n: usize) -> f32 {
    struct Dot(*const f32, *const f32, usize);

    impl Kernel for Dot {
        type Out = f32;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f32 {
            let Self(a, b, n) = self;
            let whole = n - n % S::N;
            let mut total = s.splat(0.0);
            // SAFETY: all offsets stay below `n`.
            unsafe {
                for i in (0..whole).step_by(S::N) {
                    let a = s.load(a.add(i));
                    let b = if b.is_null() { s.splat(1.0) } else { s.load(b.add(i)) };
                    total = s.mul_add(a, b, total);
                }
                let last: f32 = (whole..n)
                    .map(|i| *a.add(i) * if b.is_null() { 1.0 } else { *b.add(i) })
                    .sum();
                s.sum(total) + last
            }
        }
    }

    level.run(Dot(a, b, n))
}
