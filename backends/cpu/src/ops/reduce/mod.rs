//! Reductions over any axes of any layout.
//!
//! Each output is a fold over rows of the reduced axes. If elements are contiguous along the reduced axes, the fold
//! runs along them, in many lanes at once. If they are contiguous along the kept axes, it runs across: over many
//! outputs at once, row by row. Partial results are joined in an order that depends only on the shape.

mod fold;
mod lanes;

use std::ops::Range;

use polygrad_core::{Axes, DType, Error, Layout, MAX_RANK, ReduceOp, Result, Shape};

use super::{convert, refused};
use crate::Pointer;
use crate::loops::{Nest, Operand};
use crate::simd::{Kernel, Level};
use crate::{CpuDevice, CpuTensor};
use fold::{Fold, with_fold};
use lanes::{Across, Along, STRIP};

/// The fewest elements that one task folds, and the most tasks into which a reduction with few outputs is cut.
const TASK: usize = 32_768;
const TASKS: usize = 64;

/// See [`polygrad_core::Backend::reduce`].
pub(crate) fn reduce(op: ReduceOp, x: &CpuTensor, axes: Axes, keepdims: bool) -> Result<CpuTensor> {
    accepts(op, x.dtype())?;
    if axes.is_empty() {
        return Ok(x.clone());
    }
    if let Some(axis) = axes.iter().find(|&axis| axis >= x.shape().rank()) {
        return super::axis_in(op.name(), x, axis).map(|()| x.clone());
    }
    if matches!(x.dtype(), DType::F16 | DType::BF16) {
        let wide = convert::cast(x, DType::F32)?;
        return convert::cast(&reduce(op, &wide, axes, keepdims)?, x.dtype());
    }
    let shape = x.shape().reduced(axes, keepdims);
    let plan = Plan::new(op, x, axes)?;
    if op.needs_elements() && plan.count == 0 && shape.numel() > 0 {
        return Err(Error::invalid("a reduction over no elements has no value")
            .with_op(op.name())
            .with_operands([(*x.shape(), x.dtype())]));
    }
    let mut out = CpuTensor::empty(shape, x.dtype(), x.device())?;
    let to = out.ptr_mut();
    let device = x.device();
    // SAFETY: the types are those of the dtype, and the output, which is new, has an element for each kept position.
    with_fold!(op, x.dtype(), T, F => unsafe { plan.run::<T, F>(device, to.cast::<T>()) })
        .ok_or_else(|| refused(op.name(), x.dtype()))?;
    Ok(out)
}

/// Checks that an op is defined for a dtype.
pub(crate) fn accepts(op: ReduceOp, dtype: DType) -> Result<()> {
    let compute = if matches!(dtype, DType::F16 | DType::BF16) {
        DType::F32
    } else {
        dtype
    };
    with_fold!(op, compute, _T, _F => ()).ok_or_else(|| refused(op.name(), dtype))
}

/// Two loop nests: the kept axes and the reduced axes.
struct Plan {
    kept: Nest<1>,
    reduced: Nest<1>,
    /// Number of elements that are reduced to each output.
    count: usize,
    mean: bool,
}

impl Plan {
    fn new(op: ReduceOp, x: &CpuTensor, axes: Axes) -> Result<Self> {
        let layout = x.layout();
        let part = |reduced: bool| -> Result<Nest<1>> {
            let (mut dims, mut strides, mut rank) = ([0; MAX_RANK], [0; MAX_RANK], 0);
            for (axis, (&dim, &stride)) in x.shape().iter().zip(layout.strides()).enumerate() {
                if axes.contains(axis) == reduced {
                    (dims[rank], strides[rank]) = (dim, stride);
                    rank += 1;
                }
            }
            let shape = Shape::new(&dims[..rank])?;
            let layout = Layout::strided(shape, &strides[..rank], 0);
            Ok(Nest::new(
                &shape,
                [Operand::strided(x.ptr(), x.dtype().size(), &layout)],
            ))
        };
        let (kept, reduced) = (part(false)?, part(true)?);
        let count = reduced.numel();
        Ok(Self {
            kept,
            reduced,
            count,
            mean: op == ReduceOp::Mean,
        })
    }

    /// # Safety
    /// The input's elements are of type `T`, and `out` has room for one element per kept position.
    unsafe fn run<T: Copy + 'static, F: Fold<T>>(&self, device: CpuDevice, out: *mut T) {
        let outputs = self.kept.numel();
        if outputs == 0 {
            return;
        }
        let out = Pointer(out);
        let finish = |first: usize, wides: &mut [F::Wide]| {
            if self.mean {
                wides.iter_mut().for_each(|wide| *wide = F::divide(*wide, self.count));
            }
            let to = out.at(first);
            for (i, &mut wide) in wides.iter_mut().enumerate() {
                // SAFETY: there is room for all outputs, by the caller, and each task has its own.
                unsafe { to.add(i).write(F::finish(wide)) };
            }
        };
        if self.count == 0 {
            (0..outputs).for_each(|i| finish(i, &mut [F::widen(F::start())]));
            return;
        }
        let across =
            self.kept.rank() > 0 && self.kept.is_direct(0) && !(self.reduced.is_direct(0) && self.reduced.rank() > 0);
        // Neighbouring outputs that one call folds: side by side, or short runs one after another.
        let strip = if across {
            STRIP
        } else if self.kept.rank() <= 1 && self.reduced.rank() <= 1 {
            (TASK / self.count).clamp(1, STRIP)
        } else {
            1
        };
        let strip = strip.min(self.kept.width());
        let strips = self.kept.width().div_ceil(strip) * (outputs / self.kept.width());
        // The reduced axes are cut along all loops except the innermost, unless that is the only loop.
        let rows = self.count / self.reduced.width();
        let (pieces, piece) = self.pieces(rows, strips, strip);
        let ns = (piece * strip) as f32 * 0.15 * size_of::<T>() as f32 / 4.0 + 5.0;
        let level = device.vectors();
        if pieces == 1 {
            device.each(strips, ns, |i| {
                let (first, n) = self.strip(i, strip);
                let mut wides = [F::widen(F::start()); STRIP];
                self.fold::<T, F>(level, across, first, 0..self.count, &mut wides[..n]);
                finish(first, &mut wides[..n]);
            });
            return;
        }
        let mut partial: Vec<F::Wide> = vec![F::widen(F::start()); outputs * pieces];
        let partials = Pointer(partial.as_mut_ptr());
        device.each(strips * pieces, ns, |task| {
            let (i, part) = (task / pieces, task % pieces);
            let (first, n) = self.strip(i, strip);
            let range = part * piece..self.count.min((part + 1) * piece);
            // SAFETY: there is a partial result for each piece and output, and each task has its own.
            let wides = unsafe { std::slice::from_raw_parts_mut(partials.at(part * outputs + first), n) };
            self.fold::<T, F>(level, across, first, range, wides);
        });
        for i in 0..outputs {
            let parts = partial[i..].iter().step_by(outputs);
            let mut wide = parts.copied().reduce(F::join);
            finish(i, wide.as_mut_slice());
        }
    }

    /// The number of pieces into which the reduction of each strip of outputs is cut, and the elements of a piece.
    fn pieces(&self, rows: usize, strips: usize, strip: usize) -> (usize, usize) {
        let wanted = (self.count * strip / TASK).min(TASKS / strips.min(TASKS)).max(1);
        if wanted == 1 {
            return (1, self.count);
        }
        let width = self.reduced.width();
        let piece = if rows > 1 {
            rows.div_ceil(wanted) * width
        } else {
            width.div_ceil(wanted).next_multiple_of(lanes::BLOCK)
        };
        (self.count.div_ceil(piece), piece)
    }

    /// The first output of a strip, and its number of outputs.
    fn strip(&self, i: usize, strip: usize) -> (usize, usize) {
        let width = self.kept.width();
        let in_row = width.div_ceil(strip);
        let column = i % in_row * strip;
        (i / in_row * width + column, strip.min(width - column))
    }

    /// Joins a range of the reduced elements to the results of neighbouring outputs from `first` on. A range ends
    /// inside a row only if there is a single row.
    fn fold<T: Copy, F: Fold<T>>(
        &self,
        level: Option<Level>,
        across: bool,
        first: usize,
        range: Range<usize>,
        wides: &mut [F::Wide],
    ) {
        let width = self.reduced.width();
        let base = self.kept.row(0, first / self.kept.width());
        let base = base.wrapping_offset((first % self.kept.width()).cast_signed() * self.kept.step(0));
        let offset = base.addr().wrapping_sub(self.kept.base(0).addr()).cast_signed();
        let step = self.reduced.step(0);
        let mut at = range.start;
        while at < range.end {
            let (row, column) = (at / width, at % width);
            let from = self.reduced.row(0, row);
            let from = from.wrapping_offset(offset + column.cast_signed() * step);
            let count = (width - column).min(range.end - at);
            if across {
                run::<T, F>(level, Across::<T, F>::new(from, step, count, wides));
            } else {
                let runs = self.kept.step(0);
                run::<T, F>(
                    level,
                    Along::<T, F> {
                        from,
                        step,
                        count,
                        runs,
                        wides,
                    },
                );
            }
            at += count;
        }
    }
}

/// Runs a loop of a fold.
fn run<T, F: Fold<T>>(level: Option<Level>, kernel: impl Kernel<Out = ()>) {
    if const { F::VECTORS } {
        Level::run_loops(level, kernel);
    } else {
        Level::run_baseline(kernel);
    }
}
