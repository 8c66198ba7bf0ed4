//! Cross entropy of few classes: each register holds one class of several rows.

use polygrad_core::CrossEntropyParams;

use super::{Backward, Forward};
use crate::math::{exp_nonpositive, log};
use crate::simd::Simd;

/// The most classes for which this is faster: reading a row's elements one by one costs more than the row sums save.
pub(super) const MAX_CLASSES: usize = 10;

/// Lanes of the longest register.
const LANES: usize = 16;

/// One block of rows, one per lane of a register, stored class by class.
struct Columns([[f32; LANES]; MAX_CLASSES]);

impl Columns {
    /// # Safety
    /// `rows` rows of `n` elements must be readable at `x`, at most the lanes of a register and [`MAX_CLASSES`]
    /// respectively.
    #[inline(always)]
    unsafe fn read(x: *const f32, rows: usize, n: usize) -> Self {
        let mut columns = Self([[0.0; LANES]; MAX_CLASSES]);
        for row in 0..rows {
            for (class, column) in columns.0[..n].iter_mut().enumerate() {
                // SAFETY: by the caller.
                column[row] = unsafe { x.add(row * n + class).read() };
            }
        }
        columns
    }

    #[inline(always)]
    fn get<S: Simd>(&self, s: S, class: usize) -> S::V {
        // SAFETY: no register is longer than a column.
        unsafe { s.load(self.0[class].as_ptr()) }
    }
}

/// Losses and logsumexps of all rows.
///
/// # Safety
/// As for the rows of [`Forward`].
#[inline(always)]
pub(super) unsafe fn forward<S: Simd>(s: S, task: &Forward<'_>) {
    let Forward { x, loss, lse, n, .. } = *task;
    let CrossEntropyParams {
        ignore_index,
        label_smoothing,
        ..
    } = *task.params;
    for (block, classes) in task.classes.chunks(S::N).enumerate() {
        let first = block * S::N;
        // SAFETY: the block's rows are inside the logits, its classes inside the rows, and each row has its results.
        unsafe {
            let columns = Columns::read(x.add(first * n), classes.len(), n);
            let (mut most, mut sum) = (columns.get(s, 0), columns.get(s, 0));
            for class in 1..n {
                most = s.max(most, columns.get(s, class));
                sum = s.add(sum, columns.get(s, class));
            }
            let mut total = s.splat(0.0);
            for class in 0..n {
                total = s.add(total, exp_nonpositive(s, s.sub(columns.get(s, class), most)));
            }
            let log = log(s, total);
            s.store_part(lse.add(first), classes.len(), s.add(most, log));
            let mut own = [0.0; LANES];
            for (row, &class) in classes.iter().enumerate() {
                if class != ignore_index {
                    own[row] = columns.0[class as usize][row];
                }
            }
            // The largest logit comes first: it is close to the class's own, so their difference loses no precision.
            let mut losses = s.add(s.sub(most, s.load(own.as_ptr())), log);
            if label_smoothing > 0.0 {
                let mean = s.mul(sum, s.splat(1.0 / n as f32));
                let smooth = s.add(s.sub(most, mean), log);
                let share = s.splat(label_smoothing as f32);
                losses = s.mul_add(share, s.sub(smooth, losses), losses);
            }
            s.store_part(loss.add(first), classes.len(), losses);
            for (row, &class) in classes.iter().enumerate() {
                if class == ignore_index {
                    loss.add(first + row).write(0.0);
                }
            }
        }
    }
}

/// The gradients of all rows, a block at a time: a block has one row per lane, and thus fills one register per class.
///
/// # Safety
/// As for the rows of [`Backward`].
#[inline(always)]
pub(super) unsafe fn backward<S: Simd>(s: S, task: &Backward<'_>) {
    let Backward {
        x, to, lse, n, params, ..
    } = *task;
    let even = s.splat((params.label_smoothing / n as f64) as f32);
    let (mut lses, mut grads) = ([0.0; LANES * MAX_CLASSES], [0.0; LANES * MAX_CLASSES]);
    for (block, classes) in task.classes.chunks(S::N).enumerate() {
        let first = block * S::N;
        for row in 0..classes.len() {
            let grad = if classes[row] == params.ignore_index {
                0.0
            } else {
                task.grad(first + row)
            };
            lses[row * n..][..n].fill(lse[first + row]);
            grads[row * n..][..n].fill(grad);
        }
        let (x, to, count) = (x.wrapping_add(first * n), to.wrapping_add(first * n), classes.len() * n);
        // SAFETY: the block's rows are inside logits and output, its classes inside the rows, and the arrays
        // have room for all lanes.
        unsafe {
            for at in (0..count).step_by(S::N) {
                let left = S::N.min(count - at);
                let lse = s.load(lses.as_ptr().add(at));
                // A rounding error may put an element just above the logsumexp.
                let p = exp_nonpositive(s, s.sub(s.load_part(x.add(at), left), lse));
                let scale = s.load(grads.as_ptr().add(at));
                s.store_part(to.add(at), left, s.mul(s.sub(p, even), scale));
            }
            for (row, &class) in classes.iter().enumerate() {
                let to = to.add(row * n);
                if class == params.ignore_index {
                    // Multiplying by 0 would keep the NaN of an ignored row.
                    std::ptr::write_bytes(to, 0, n);
                    continue;
                }
                let own = to.add(class as usize);
                own.write(own.read() - grads[row * n] * (1.0 - params.label_smoothing) as f32);
            }
        }
    }
}
