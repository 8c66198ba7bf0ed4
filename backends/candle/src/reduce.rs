//! Reductions over axes. candle's sums add sequentially, and its extremes drop NaN, so these are our own loops on CPUs.

use polygrad_core::{Axes, DType, Element, ReduceOp, Result, Scalar, dispatch_dtype, room};

use crate::CandleTensor;
use crate::binary::cast;
use crate::engine::{engine, filled};
use crate::movement::reshape;
use crate::support::{refused_dtype, unknown};
use crate::tensor::only_cpu;
use crate::values::{Item, around};

pub(crate) fn reduce(op: ReduceOp, x: &CandleTensor, axes: Axes, keepdims: bool) -> Result<CandleTensor> {
    let (name, dtype, shape) = (op.name(), x.dtype(), x.shape());
    if !op.accepts(dtype) {
        return Err(refused_dtype(name, dtype));
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let adds = matches!(op, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod);
    if adds && matches!(dtype, DType::F16 | DType::BF16) {
        return cast(&reduce(op, &cast(x, DType::F32)?, axes, keepdims)?, dtype);
    }
    let target = shape.reduced(axes, keepdims);
    if !x.device().is_cpu() {
        return reshape(&elsewhere(op, x, axes)?, target);
    }
    let count: usize = axes.iter().map(|axis| shape[axis]).product();
    let step = if op == ReduceOp::Mean { ReduceOp::Sum } else { op };
    // Neighbouring axes are reduced together; other axes one after the other, from the last.
    let mut out = x.clone();
    let mut end = shape.rank();
    while let Some(last) = (0..end).rev().find(|&axis| axes.contains(axis)) {
        let first = (0..=last)
            .rev()
            .take_while(|&axis| axes.contains(axis))
            .last()
            .unwrap_or(last);
        out = dispatch_dtype!(dtype, T => run::<T>(step, &out, first, last))?;
        end = first;
    }
    if op == ReduceOp::Mean {
        out = dispatch_dtype!(dtype, T => crate::values::map(name, &out, |x: T| <T as Element>::from_f64(x.to_f64() / count as f64)))?;
    }
    reshape(&out, target)
}

/// Reduces the axes `first..=last`, which stay with extent 1.
fn run<T: Item>(op: ReduceOp, x: &CandleTensor, first: usize, last: usize) -> Result<CandleTensor> {
    let mut shape = x.shape();
    let (outer, dim, inner) = around(&shape, first, last);
    shape.dims_mut()[first..=last].fill(1);
    let held = x.held(op.name())?;
    let values = held.values::<T>()?;
    let mut out = room(shape.numel())?;
    let fold = |start: T, rule: fn(T, T) -> T, out: &mut Vec<T>| fold(&values, (outer, dim, inner), start, rule, out);
    match op {
        ReduceOp::Sum if T::DTYPE.is_float() => sums(&values, (outer, dim, inner), &mut out)?,
        ReduceOp::Sum => fold(
            T::from_i64(0),
            |a, b| T::from_i64(a.to_i64().wrapping_add(b.to_i64())),
            &mut out,
        ),
        ReduceOp::Prod if T::DTYPE.is_float() => products(&values, (outer, dim, inner), &mut out)?,
        ReduceOp::Prod => fold(
            T::from_i64(1),
            |a, b| T::from_i64(a.to_i64().wrapping_mul(b.to_i64())),
            &mut out,
        ),
        ReduceOp::Any => fold(T::from_i64(0), |a, b| if b > a { b } else { a }, &mut out),
        ReduceOp::All => fold(T::from_i64(1), |a, b| if b < a { b } else { a }, &mut out),
        // Callers make sure that there are elements. The first one is the start, and is compared once more.
        ReduceOp::Max => extremes(&values, (outer, dim, inner), |new, best| new > best, &mut out),
        ReduceOp::Min => extremes(&values, (outer, dim, inner), |new, best| new < best, &mut out),
        _ => return Err(unknown(op.name())),
    }
    CandleTensor::of(shape, out, &x.device())
}

type Extents = (usize, usize, usize);

/// Folds `[outer, dim, inner]` over `dim`.
fn fold<T: Item>(values: &[T], (outer, dim, inner): Extents, start: T, rule: impl Fn(T, T) -> T, out: &mut Vec<T>) {
    for i in 0..outer {
        let at = out.len();
        out.resize(at + inner, start);
        let folded = &mut out[at..];
        for row in (0..dim).map(|j| &values[(i * dim + j) * inner..][..inner]) {
            for (old, &new) in folded.iter_mut().zip(row) {
                *old = rule(*old, new);
            }
        }
    }
}

/// NaN is beyond every other value.
fn extremes<T: Item>(values: &[T], (outer, dim, inner): Extents, beyond: impl Fn(T, T) -> bool, out: &mut Vec<T>) {
    for i in 0..outer {
        let at = out.len();
        if dim == 0 || inner == 0 {
            continue;
        }
        out.extend_from_slice(&values[i * dim * inner..][..inner]);
        let best = &mut out[at..];
        for row in (1..dim).map(|j| &values[(i * dim + j) * inner..][..inner]) {
            for (best, &new) in best.iter_mut().zip(row) {
                if beyond(new, *best) || is_nan(new) {
                    *best = new;
                }
            }
        }
    }
}

pub(crate) fn is_nan<T: PartialOrd>(value: T) -> bool {
    value.partial_cmp(&value).is_none()
}

fn products<T: Item>(values: &[T], (outer, dim, inner): Extents, out: &mut Vec<T>) -> Result<()> {
    let mut row = filled(inner, 1.0f64)?;
    for i in 0..outer {
        row.fill(1.0);
        for values in (0..dim).map(|j| &values[(i * dim + j) * inner..][..inner]) {
            row.iter_mut()
                .zip(values)
                .for_each(|(product, value)| *product *= value.to_f64());
        }
        out.extend(row.iter().map(|&product| T::from_f64(product)));
    }
    Ok(())
}

/// Number of terms that are added in plain f64 before the rounding error is accumulated.
const BLOCK: usize = 256;
/// Sums side by side, for vector instructions.
const LANES: usize = 8;

/// Sums in f64, block by block; between blocks, the rounding error is accumulated.
fn sums<T: Item>(values: &[T], (outer, dim, inner): Extents, out: &mut Vec<T>) -> Result<()> {
    if inner == 1 {
        out.extend((0..outer).map(|i| T::from_f64(total(&values[i * dim..][..dim]))));
        return Ok(());
    }
    let mut block = filled(inner, 0.0f64)?;
    let mut totals = filled(inner, Total::default())?;
    for i in 0..outer {
        totals.fill(Total::default());
        for start in (0..dim).step_by(BLOCK) {
            block.fill(0.0);
            for j in start..dim.min(start + BLOCK) {
                let row = &values[(i * dim + j) * inner..][..inner];
                block
                    .iter_mut()
                    .zip(row)
                    .for_each(|(sum, value)| *sum += value.to_f64());
            }
            totals.iter_mut().zip(&block).for_each(|(total, &sum)| total.add(sum));
        }
        out.extend(totals.iter().map(|total| T::from_f64(total.value())));
    }
    Ok(())
}

/// The sum of a line.
pub(crate) fn total<T: Item>(line: &[T]) -> f64 {
    let mut total = Total::default();
    for block in line.chunks(BLOCK) {
        let mut lanes = [0.0; LANES];
        let chunks = block.chunks_exact(LANES);
        let rest: f64 = chunks.remainder().iter().map(|value| value.to_f64()).sum();
        for chunk in chunks {
            lanes
                .iter_mut()
                .zip(chunk)
                .for_each(|(lane, value)| *lane += value.to_f64());
        }
        total.add(lanes.iter().sum::<f64>() + rest);
    }
    total.value()
}

/// A running sum, and the accumulated rounding errors of the additions.
///
/// Source: Knuth, "The Art of Computer Programming", volume 2, 4.2.2, theorem B (the rounding error of a sum).
#[derive(Clone, Copy, Default)]
pub(crate) struct Total {
    sum: f64,
    lost: f64,
}

impl Total {
    #[inline]
    pub(crate) fn add(&mut self, term: f64) {
        let before = self.sum;
        self.sum = before + term;
        let added = self.sum - before;
        self.lost += (before - (self.sum - added)) + (term - added);
    }

    #[inline]
    pub(crate) fn value(self) -> f64 {
        // An infinite sum has no finite rounding error.
        if self.sum.is_finite() {
            self.sum + self.lost
        } else {
            self.sum
        }
    }
}

/// On GPUs, candle's own kernels, whose sums are trees.
fn elsewhere(op: ReduceOp, x: &CandleTensor, axes: Axes) -> Result<CandleTensor> {
    let (name, list) = (op.name(), axes.iter().collect::<Vec<_>>());
    let n = x.shape().reduced(axes, true).numel();
    match op {
        ReduceOp::Sum => CandleTensor::made(name, n, x.dtype(), || x.raw().sum_keepdim(list)),
        ReduceOp::Mean => CandleTensor::made(name, n, x.dtype(), || x.raw().mean_keepdim(list)),
        ReduceOp::Any | ReduceOp::All | ReduceOp::Max | ReduceOp::Min => {
            let largest = matches!(op, ReduceOp::Any | ReduceOp::Max);
            let extreme = |x: &CandleTensor| -> Result<CandleTensor> {
                let made = engine(name, || {
                    axes.iter().try_fold(x.raw().clone(), |x, axis| {
                        if largest {
                            x.max_keepdim(axis)
                        } else {
                            x.min_keepdim(axis)
                        }
                    })
                })?;
                CandleTensor::fresh(made, x.dtype())
            };
            let found = extreme(x)?;
            if !x.dtype().is_float() {
                return Ok(found);
            }
            // The kernels drop NaN, so NaN is restored afterwards.
            let nan = crate::binary::compare(polygrad_core::CompareOp::Ne, x, x)?;
            let any = elsewhere(ReduceOp::Any, &nan, axes)?;
            let lost = CandleTensor::full(
                polygrad_core::Shape::SCALAR,
                Scalar::Float(f64::NAN),
                x.dtype(),
                &x.device(),
            )?;
            crate::binary::select(&any, &lost, &found)
        }
        _ => Err(only_cpu(name, &x.device())),
    }
}
