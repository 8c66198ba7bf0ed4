//! Positions of extremes, running sums and sorting: ops on lines of elements.
//!
//! candle computes running sums as a product with a triangular matrix, its sort is not stable with NaN, and its argmax
//! treats NaN as small, so these are our own loops.

use std::cmp::Ordering;

use polygrad_core::{ArgOp, Axes, Element, Result, dispatch_dtype, room};

use crate::CandleTensor;
use crate::movement::permute;
use crate::reduce::{Total, is_nan};
use crate::support::unknown;
use crate::values::{Item, around};

/// Whether a value replaces the extreme so far: if it is beyond it, or if it is the first NaN. Thus the first of equal
/// values stays.
pub(crate) fn replaces<T: Element>(value: T, best: T, wanted: Ordering) -> bool {
    match value.partial_cmp(&best) {
        Some(order) => order == wanted,
        None => !is_nan(best),
    }
}

pub(crate) fn arg_reduce(op: ArgOp, x: &CandleTensor, axis: usize, keepdims: bool) -> Result<CandleTensor> {
    fn of<T: Item>(op: ArgOp, x: &CandleTensor, axis: usize, wanted: Ordering) -> Result<Vec<i64>> {
        let (outer, dim, inner) = around(&x.shape(), axis, axis);
        let held = x.held(op.name())?;
        let values = held.values::<T>()?;
        let mut out = room(outer * inner)?;
        for start in (0..outer).flat_map(|i| (0..inner).map(move |j| i * dim * inner + j)) {
            let at = |k: usize| values[start + k * inner];
            let best = (1..dim).fold(0, |best, k| if replaces(at(k), at(best), wanted) { k } else { best });
            out.push(best as i64);
        }
        Ok(out)
    }
    let wanted = match op {
        ArgOp::Max => Ordering::Greater,
        ArgOp::Min => Ordering::Less,
        _ => return Err(unknown(op.name())),
    };
    let positions = dispatch_dtype!(x.dtype(), T => of::<T>(op, x, axis, wanted))?;
    CandleTensor::of(x.shape().reduced(Axes::one(axis), keepdims), positions, &x.device())
}

pub(crate) fn cumsum(x: &CandleTensor, axis: usize) -> Result<CandleTensor> {
    dispatch_dtype!(x.dtype(), T => along("cumsum", x, axis, |line: &[T], out: &mut Vec<T>| {
        if T::DTYPE.is_float() {
            let mut total = Total::default();
            out.extend(line.iter().map(|value| {
                total.add(value.to_f64());
                T::from_f64(total.value())
            }));
        } else {
            let mut total = 0i64;
            out.extend(line.iter().map(|value| {
                total = total.wrapping_add(value.to_i64());
                T::from_i64(total)
            }));
        }
    }))
}

/// The sorted values, and the position of each in its line.
pub(crate) fn sort(x: &CandleTensor, axis: usize, descending: bool) -> Result<(CandleTensor, CandleTensor)> {
    let positions = dispatch_dtype!(x.dtype(), T => along("sort", x, axis, |line: &[T], out: &mut Vec<i64>| {
        let start = out.len();
        out.extend(0..line.len() as i64);
        out[start..].sort_by(|&i, &j| {
            let (i, j) = if descending { (j, i) } else { (i, j) };
            let (a, b) = (line[i as usize], line[j as usize]);
            a.partial_cmp(&b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
        });
    }))?;
    Ok((crate::index::gather(x, axis, &positions)?, positions))
}

/// Computes a line of the same length from each line along an axis.
fn along<T: Item, R: Item>(
    op: &'static str,
    x: &CandleTensor,
    axis: usize,
    f: impl Fn(&[T], &mut Vec<R>),
) -> Result<CandleTensor> {
    let rank = x.shape().rank();
    let order = Axes::new((0..rank).filter(|&i| i != axis).chain([axis]))?;
    let (len, x) = (x.shape()[axis], permute(x, order)?);
    let shape = x.shape();
    let mut out = room(shape.numel())?;
    if len > 0 {
        x.held(op)?
            .values::<T>()?
            .chunks_exact(len)
            .for_each(|line| f(line, &mut out));
    }
    permute(&CandleTensor::of(shape, out, &x.device())?, order.inverse())
}
