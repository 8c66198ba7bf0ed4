//! The inner loops, over many lanes at once, which the compiler vectorizes.

use super::fold::Fold;
use crate::simd::{Kernel, Simd};

/// Outputs that are folded side by side.
pub(super) const STRIP: usize = 64;

/// Lanes of a fold along a run: four registers of 64 bytes, so that additions need not wait for one another.
const LANES: usize = 64;

/// Steps that a lane takes before its result is widened, to bound the rounding error.
const STEPS: usize = 32;

/// Elements after which a run's lanes are widened.
pub(super) const BLOCK: usize = LANES * STEPS;

/// Runs of evenly spaced elements, each joined to a result of its own.
pub(super) struct Along<'a, T, F: Fold<T>> {
    /// The first run.
    pub(super) from: *const u8,
    /// Bytes from one element of a run to the next.
    pub(super) step: isize,
    /// Elements of a run.
    pub(super) count: usize,
    /// Bytes from one run to the next.
    pub(super) runs: isize,
    pub(super) wides: &'a mut [F::Wide],
}

impl<T: Copy, F: Fold<T>> Kernel for Along<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let direct = self.step == size_of::<T>().cast_signed();
        let mut run = self.from;
        for wide in self.wides {
            let mut from = run;
            let mut left = self.count;
            while left > 0 {
                let n = left.min(BLOCK);
                // SAFETY: the plan's elements are readable, and at most the remaining ones are read.
                let block = unsafe {
                    if direct {
                        run_block::<T, F>(from.cast(), n)
                    } else {
                        strided_block::<T, F>(from, self.step, n)
                    }
                };
                *wide = F::join(*wide, block);
                from = from.wrapping_offset(n.cast_signed() * self.step);
                left -= n;
            }
            run = run.wrapping_offset(self.runs);
        }
    }
}

/// # Safety
/// `n` elements must be readable.
#[inline(always)]
unsafe fn run_block<T: Copy, F: Fold<T>>(from: *const T, n: usize) -> F::Wide {
    let whole = n - n % LANES;
    let mut tail = F::widen(F::start());
    if whole < n {
        let mut acc = F::start();
        for i in whole..n {
            // SAFETY: by the caller.
            acc = F::step(acc, unsafe { from.add(i).read() });
        }
        tail = F::widen(acc);
    }
    if whole == 0 {
        return tail;
    }
    let mut lanes = [F::start(); LANES];
    for i in (0..whole).step_by(LANES) {
        for (j, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: `i + j < whole`.
            *lane = F::step(*lane, unsafe { from.add(i + j).read() });
        }
    }
    let mut wides = [F::widen(F::start()); LANES];
    for j in 0..LANES {
        wides[j] = F::widen(lanes[j]);
    }
    macro_rules! join_halves {
        ($($half:literal)*) => {$(
            for j in 0..$half {
                wides[j] = F::join(wides[j], wides[j + $half]);
            }
        )*};
    }
    // The counts are constants, so that the lanes stay in registers.
    join_halves!(32 16 8 4 2 1);
    F::join(wides[0], tail)
}

/// # Safety
/// `n` elements must be readable, `step` bytes apart.
#[inline(always)]
unsafe fn strided_block<T: Copy, F: Fold<T>>(from: *const u8, step: isize, n: usize) -> F::Wide {
    let mut total = F::widen(F::start());
    let mut i = 0;
    while i < n {
        let end = n.min(i + STEPS);
        let mut acc = F::start();
        while i < end {
            // SAFETY: by the caller.
            acc = F::step(acc, unsafe { from.offset(i.cast_signed() * step).cast::<T>().read() });
            i += 1;
        }
        total = F::join(total, F::widen(acc));
    }
    total
}

/// Folds `count` rows, `step` bytes apart, with as many neighbouring elements as there are results, and joins them to
/// the results.
pub(super) struct Across<'a, T, F: Fold<T>> {
    from: *const u8,
    step: isize,
    count: usize,
    wides: &'a mut [F::Wide],
}

impl<'a, T, F: Fold<T>> Across<'a, T, F> {
    pub(super) fn new(from: *const u8, step: isize, count: usize, wides: &'a mut [F::Wide]) -> Self {
        Self {
            from,
            step,
            count,
            wides,
        }
    }
}

impl<T: Copy, F: Fold<T>> Kernel for Across<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            from,
            step,
            count,
            wides,
        } = self;
        for top in (0..count).step_by(STEPS) {
            let from = from.wrapping_offset(top.cast_signed() * step);
            let rows = STEPS.min(count - top);
            // SAFETY: the plan's elements are readable: `rows` rows with one element per result.
            unsafe {
                // The number of lanes that easily fits the registers.
                let mut at = 0;
                while wides.len() - at >= LANES {
                    rows_block::<T, F, LANES>(from, step, rows, at, wides);
                    at += LANES;
                }
                while wides.len() - at >= 8 {
                    rows_block::<T, F, 8>(from, step, rows, at, wides);
                    at += 8;
                }
                while at < wides.len() {
                    rows_block::<T, F, 1>(from, step, rows, at, wides);
                    at += 1;
                }
            }
        }
    }
}

/// # Safety
/// `rows` rows of `N` elements from number `at` on, `step` bytes apart, must be readable, and the same results exist.
#[inline(always)]
unsafe fn rows_block<T: Copy, F: Fold<T>, const N: usize>(
    from: *const u8,
    step: isize,
    rows: usize,
    at: usize,
    wides: &mut [F::Wide],
) {
    let mut lanes = [F::start(); N];
    for row in 0..rows.cast_signed() {
        for (j, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: by the caller.
            *lane = F::step(*lane, unsafe { from.offset(row * step).cast::<T>().add(at + j).read() });
        }
    }
    for (wide, lane) in wides[at..at + N].iter_mut().zip(lanes) {
        *wide = F::join(*wide, F::widen(lane));
    }
}
