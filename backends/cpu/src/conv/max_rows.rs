//! The maximum of each window of a plane, for windows without border and with a stride of 1 or 2 along a row.

use crate::simd::{Kernel, Simd};
use polygrad_cpu_kernels::conv::geometry::{Extents, Geometry};

/// One plane of f32.
pub(super) struct MaxRows<'a> {
    pub(super) g: &'a Geometry,
    pub(super) from: *const f32,
    pub(super) to: *mut f32,
    /// Where to write the positions of the maxima, if they are wanted.
    pub(super) to_index: Option<*mut i64>,
}

impl MaxRows<'_> {
    /// Whether the windows are of this kind.
    pub(super) fn fits(g: &Geometry) -> bool {
        g.windows_are_inside() && g.stride[2] <= 2 && g.plane() <= i32::MAX as usize
    }
}

impl Kernel for MaxRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // The most common windows, whose loops the compiler can unroll.
        let common = self.g.kernel == [1, 2, 2] && self.g.stride[2] == 2;
        match (self.to_index, common) {
            (Some(to_index), true) => self.rows(s, to_index, [1, 2, 2], 2),
            (Some(to_index), false) => self.rows(s, to_index, self.g.kernel, self.g.stride[2]),
            (None, true) => self.values(s, [1, 2, 2], 2),
            (None, false) => self.values(s, self.g.kernel, self.g.stride[2]),
        }
    }
}

impl MaxRows<'_> {
    /// Depth and row of the input where the windows of an output line begin.
    #[inline(always)]
    fn start(&self, line: usize) -> [usize; 2] {
        let [_, rows, _] = self.g.output;
        [line / rows * self.g.stride[0], line % rows * self.g.stride[1]]
    }

    /// Position within the plane of a tap of the window that begins at `start` and `column`.
    #[inline(always)]
    fn place(&self, start: [usize; 2], column: usize, tap: Extents) -> usize {
        let g = self.g;
        let depth = start[0] + tap[0] * g.dilation[0];
        let row = start[1] + tap[1] * g.dilation[1];
        (depth * g.input[1] + row) * g.input[2] + column + tap[2] * g.dilation[2]
    }

    #[inline(always)]
    fn rows<S: Simd>(&self, s: S, to_index: *mut i64, kernel: Extents, step: usize) {
        let &Self { g, from, to, .. } = self;
        let [depths, rows, columns] = g.output;
        let lanes: [f32; 16] = std::array::from_fn(|lane| f32::from_bits((lane * step) as u32));
        // SAFETY: no register is longer than 16 elements.
        let steps = s.bits(unsafe { s.load(lanes.as_ptr()) });
        for line in 0..depths * rows {
            let start = self.start(line);
            for column in (0..columns).step_by(S::N) {
                let n = S::N.min(columns - column);
                let mut best = s.splat(0.0);
                let mut chosen = best;
                let mut first = true;
                for depth in 0..kernel[0] {
                    for height in 0..kernel[1] {
                        for tap in 0..kernel[2] {
                            let place = self.place(start, column * step, [depth, height, tap]);
                            // SAFETY: by `fits`, every tap of every window is inside the plane.
                            let value = unsafe { every(s, from.add(place), n, step) };
                            let index = s.from_bits(s.add_int(s.splat_int(place as i32), steps));
                            if first {
                                (best, chosen, first) = (value, index, false);
                                continue;
                            }
                            // NaN counts as the largest; of equal elements the first is kept.
                            let larger = s.lt(best, value);
                            let (raised, moved) = (s.select(larger, value, best), s.select(larger, index, chosen));
                            let unordered = s.select(s.eq(best, best), index, chosen);
                            let is_number = s.eq(value, value);
                            best = s.select(is_number, raised, value);
                            chosen = s.select(is_number, moved, unordered);
                        }
                    }
                }
                let at = line * columns + column;
                let mut indices = [0f32; 16];
                // SAFETY: the output has `n` more elements in this row, and `room` in all; no
                // register is longer than 16.
                unsafe {
                    s.store(indices.as_mut_ptr(), chosen);
                    let room = g.out_plane() - at;
                    if room >= S::N {
                        // The next row overwrites the surplus lanes.
                        s.store(to.add(at), best);
                        for (lane, index) in indices[..S::N].iter().enumerate() {
                            to_index.add(at + lane).write(i64::from(index.to_bits()));
                        }
                    } else {
                        s.store_part(to.add(at), n, best);
                        for (lane, index) in indices[..n].iter().enumerate() {
                            to_index.add(at + lane).write(i64::from(index.to_bits()));
                        }
                    }
                }
            }
        }
    }

    /// [`MaxRows::rows`] without positions.
    #[inline(always)]
    fn values<S: Simd>(&self, s: S, kernel: Extents, step: usize) {
        let &Self { g, from, to, .. } = self;
        let [depths, rows, columns] = g.output;
        for line in 0..depths * rows {
            let start = self.start(line);
            for column in (0..columns).step_by(S::N) {
                let n = S::N.min(columns - column);
                let mut best = s.splat(f32::NEG_INFINITY);
                for depth in 0..kernel[0] {
                    for height in 0..kernel[1] {
                        for tap in 0..kernel[2] {
                            let place = self.place(start, column * step, [depth, height, tap]);
                            // SAFETY: by `fits`, every tap of every window is inside the plane.
                            let value = unsafe { every(s, from.add(place), n, step) };
                            // `max` keeps a NaN only of its second operand.
                            best = s.select(s.eq(best, best), s.max(best, value), best);
                        }
                    }
                }
                let at = line * columns + column;
                // SAFETY: the output has `n` more elements in this row; the next row overwrites the surplus lanes.
                unsafe {
                    if g.out_plane() - at >= S::N {
                        s.store(to.add(at), best);
                    } else {
                        s.store_part(to.add(at), n, best);
                    }
                }
            }
        }
    }
}

/// `n` elements, each `stride` after the one before.
///
/// # Safety
/// The elements must be readable; the stride is 1 or 2.
#[inline(always)]
unsafe fn every<S: Simd>(s: S, from: *const f32, n: usize, stride: usize) -> S::V {
    // SAFETY: by the caller.
    unsafe {
        if stride == 1 {
            return if n == S::N { s.load(from) } else { s.load_part(from, n) };
        }
        // Nothing after the last wanted element is read.
        let readable = 2 * n - 1;
        let low = s.load_part(from, readable.min(S::N));
        let high = s.load_part(from.wrapping_add(S::N), readable.saturating_sub(S::N));
        s.evens(low, high)
    }
}
