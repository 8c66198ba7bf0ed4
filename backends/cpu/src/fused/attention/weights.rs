//! From scores to weights, and from the weights' gradient to the scores' gradient.

use super::super::rows::{each_in_row, max_row, sum_row};
use super::task::{Block, VisibleKeys};
use crate::math::exp_nonpositive;
use crate::simd::{Kernel, Simd};

/// Turns scores into weights, in place. Keys that a query does not see get the weight 0; their scores are not read.
pub(super) struct Softmax {
    pub(super) scores: *mut f32,
    /// Elements from row to row.
    pub(super) stride: usize,
    pub(super) block: Block,
    pub(super) sight: VisibleKeys,
    pub(super) mask: Option<Mask>,
}

impl Kernel for Softmax {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let blocked = self.mask.is_some() || self.sight.is_causal();
        for row in 0..self.block.rows {
            let query = self.block.first + row;
            let n = self.sight.keys(query);
            let x = self.scores.wrapping_add(row * self.stride);
            // SAFETY: the row is inside the block, its mask inside the tensor.
            unsafe {
                x.add(n).write_bytes(0, self.block.keys - n);
                if let Some(mask) = self.mask {
                    mask.apply(s, query, x, n);
                }
                if n == 0 {
                    continue;
                }
                let most = max_row(s, x, n);
                if most == f32::NEG_INFINITY && blocked {
                    // Blocked keys get the weight 0 even if all keys are blocked; a NaN stays.
                    (0..n).for_each(|i| x.add(i).write(if x.add(i).read().is_nan() { f32::NAN } else { 0.0 }));
                    continue;
                }
                let top = s.splat(most);
                let total = sum_row!(s, n, |load, store| {
                    let e = exp_nonpositive(s, s.sub(load(x), top));
                    store(x, e);
                    e
                });
                let scale = s.splat((1.0 / total) as f32);
                each_in_row!(s, n, |load, store| store(x, s.mul(load(x), scale)));
            }
        }
    }
}

/// Turns the weights' gradient into that of the products of queries and keys, in place: `scale · w (g − Σ w g)`.
///
/// If one weight is nearly 1, its g and the mean are nearly equal, and their difference would be mostly the rounding
/// error of the mean. Therefore the mean of the differences is subtracted, too.
pub(super) struct ToScores {
    pub(super) weights: *const f32,
    pub(super) grad: *mut f32,
    /// Elements from row to row, in both.
    pub(super) stride: usize,
    pub(super) block: Block,
    pub(super) sight: VisibleKeys,
    pub(super) scale: f32,
}

impl Kernel for ToScores {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = s.splat(self.scale);
        for row in 0..self.block.rows {
            let n = self.sight.keys(self.block.first + row);
            let at = row * self.stride;
            let (w, g) = (self.weights.wrapping_add(at), self.grad.wrapping_add(at));
            // SAFETY: the rows are inside the blocks.
            unsafe {
                g.add(n).write_bytes(0, self.block.keys - n);
                let mean = s.splat(sum_row!(s, n, |load, store| s.mul(load(w), load(g))) as f32);
                let rest = sum_row!(s, n, |load, store| {
                    let left = s.sub(load(g), mean);
                    store(g, left);
                    s.mul(load(w), left)
                });
                let rest = s.splat(rest as f32);
                each_in_row!(s, n, |load, store| {
                    store(g, s.mul(s.mul(load(w), scale), s.sub(load(g), rest)));
                });
            }
        }
    }
}

/// Which keys are visible (bools), or numbers to add to their scores; strides in elements.
#[derive(Clone, Copy)]
pub(super) struct Mask {
    pub(super) ptr: *const u8,
    pub(super) offset: isize,
    pub(super) rows: isize,
    pub(super) cols: isize,
    pub(super) bools: bool,
}

impl Mask {
    /// # Safety
    /// The row must be inside the mask, and `n` scores writable.
    #[inline(always)]
    unsafe fn apply<S: Simd>(self, s: S, row: usize, x: *mut f32, n: usize) {
        let start = self.offset + row.cast_signed() * self.rows;
        // SAFETY: by the caller.
        unsafe {
            if self.bools {
                if self.cols == 1 {
                    // Most rows of most masks hide nothing.
                    let visible = std::slice::from_raw_parts(self.ptr.offset(start), n);
                    if visible.iter().fold(true, |all, &visible| all & (visible != 0)) {
                        return;
                    }
                }
                for i in 0..n {
                    if self.ptr.offset(start + i.cast_signed() * self.cols).read() == 0 {
                        x.add(i).write(f32::NEG_INFINITY);
                    }
                }
                return;
            }
            let from = self.ptr.cast::<f32>().offset(start);
            if self.cols == 1 {
                each_in_row!(s, n, |load, store| store(x, s.add(load(x), load(from))));
                return;
            }
            for i in 0..n {
                let y = x.add(i).read() + from.offset(i.cast_signed() * self.cols).read();
                x.add(i).write(y);
            }
        }
    }
}
