//! Sums and maxima over rows of f32, vectorized.

use crate::simd::Simd;

/// Elements after which the lanes are added up in f64, to bound the rounding error.
pub(super) const BLOCK: usize = 1024;

/// A register with all but the first `n` lanes set to 0.
#[inline(always)]
pub(super) fn first<S: Simd>(s: S, v: S::V, n: usize) -> S::V {
    let mut lanes = [0f32; 16];
    // SAFETY: no register is longer than the array.
    unsafe {
        s.store(lanes.as_mut_ptr(), v);
        s.load_part(lanes.as_ptr(), n)
    }
}

/// Sums up `$body` over a row of `$n` elements. Given the pointer to a tensor's row, `$load` reads the elements of the
/// current step, and `$store` writes them. The sum is an f64.
macro_rules! sum_row {
    ($s:expr, $n:expr, |$load:ident, $store:ident| $body:expr) => {{
        let (s, n): (_, usize) = ($s, $n);
        let mut total = 0f64;
        let mut at = 0;
        while at < n {
            let block = n.min(at + crate::fused::rows::BLOCK);
            let mut even = s.splat(0.0);
            let mut odd = s.splat(0.0);
            while at + 2 * S::N <= block {
                {
                    #[allow(unused)]
                    let $load = |x: *const f32| s.load(x.add(at));
                    #[allow(unused)]
                    let $store = |x: *mut f32, v| s.store(x.add(at), v);
                    even = s.add(even, $body);
                }
                at += S::N;
                {
                    #[allow(unused)]
                    let $load = |x: *const f32| s.load(x.add(at));
                    #[allow(unused)]
                    let $store = |x: *mut f32, v| s.store(x.add(at), v);
                    odd = s.add(odd, $body);
                }
                at += S::N;
            }
            while at < block {
                let left = S::N.min(block - at);
                #[allow(unused)]
                let $load = |x: *const f32| s.load_part(x.add(at), left);
                #[allow(unused)]
                let $store = |x: *mut f32, v| s.store_part(x.add(at), left, v);
                let v = $body;
                even = s.add(
                    even,
                    if left < S::N {
                        crate::fused::rows::first(s, v, left)
                    } else {
                        v
                    },
                );
                at += left;
            }
            total += f64::from(s.sum(s.add(even, odd)));
        }
        total
    }};
}

/// Evaluates `$body` for each step over a row, like [`sum_row`]. However, stores may bypass the caches, so the kernel
/// should not read the results again.
macro_rules! each_in_row {
    ($s:expr, $n:expr, |$load:ident, $store:ident| $body:expr) => {{
        let (s, n): (_, usize) = ($s, $n);
        let mut at = 0;
        while at + S::N <= n {
            {
                let $load = |x: *const f32| s.load(x.add(at));
                let $store = |x: *mut f32, v| s.stream(x.add(at), v);
                $body;
            }
            at += S::N;
        }
        if at < n {
            let left = n - at;
            let $load = |x: *const f32| s.load_part(x.add(at), left);
            let $store = |x: *mut f32, v| s.store_part(x.add(at), left, v);
            $body;
        }
    }};
}

pub(super) use {each_in_row, sum_row};

/// The largest element of a row; a NaN may be lost.
///
/// # Safety
/// `n` elements must be readable.
#[inline(always)]
pub(super) unsafe fn max_row<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    // SAFETY: by the caller; the last register may overlap the one before.
    unsafe {
        if n < S::N {
            let mut most = f32::NEG_INFINITY;
            for i in 0..n {
                most = most.max(x.add(i).read());
            }
            return most;
        }
        let mut even = s.load(x.add(n - S::N));
        let mut odd = even;
        let mut at = 0;
        while at + 2 * S::N <= n {
            even = s.max(even, s.load(x.add(at)));
            odd = s.max(odd, s.load(x.add(at + S::N)));
            at += 2 * S::N;
        }
        if at + S::N <= n {
            even = s.max(even, s.load(x.add(at)));
        }
        s.max_lane(s.max(even, odd))
    }
}
