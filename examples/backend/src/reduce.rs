//! Reductions, running sums and sorting: ops on lines of elements.
//!
//! Each op moves its axes to the end, with a view, so that a line is a slice of the values.

use std::cmp::Ordering;

use polygrad::backend::{ArgOp, Axes, Element, ReduceOp, Result, Shape, collect, room};

use crate::index::gather;
use crate::movement::permute;
use crate::support::{refused, typed, unknown};
use crate::tensor::ToyTensor;
use crate::total::Total;

/// The order of the axes in which these are last.
fn with_last(axes: Axes, rank: usize) -> Result<Axes> {
    let kept = (0..rank).filter(|&axis| !axes.contains(axis));
    Axes::new(kept.chain(axes.iter()))
}

/// The `count` lines of `len` values; `chunks_exact` does not support length 0.
fn lines<T>(values: &[T], count: usize, len: usize) -> impl ExactSizeIterator<Item = &[T]> {
    (0..count).map(move |i| &values[i * len..(i + 1) * len])
}

pub(crate) fn reduce(op: ReduceOp, x: &ToyTensor, axes: Axes, keepdims: bool) -> Result<ToyTensor> {
    if !op.accepts(x.dtype()) {
        return Err(refused(op.name(), x.dtype()));
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let shape = x.shape().reduced(axes, keepdims);
    let len = axes.iter().map(|axis| x.shape()[axis]).product();
    let x = permute(x, with_last(axes, x.shape().rank())?);
    typed!(op.name(), x.dtype(), [f32 f64 i64 bool], T => {
        let f = line_rule::<T>(op).ok_or_else(|| unknown(op.name()))?;
        let values = x.values::<T>()?;
        Ok(ToyTensor::new(shape, collect(lines(&values, shape.numel(), len).map(f))?))
    })
}

fn line_rule<T: Element>(op: ReduceOp) -> Option<fn(&[T]) -> T> {
    fn extreme<T: Element>(line: &[T], wanted: Ordering) -> T {
        let beyond = |best, other| if replaces(other, best, wanted) { other } else { best };
        // Callers make sure that there are elements.
        line.iter().copied().reduce(beyond).unwrap_or(T::from_i64(0))
    }
    Some(match op {
        ReduceOp::Sum => |line| Total::of(line.iter().copied()).value(),
        ReduceOp::Mean => |line| T::from_f64(Total::of(line.iter().copied()).real() / line.len() as f64),
        ReduceOp::Prod if T::DTYPE.is_float() => |line| T::from_f64(line.iter().map(|x| x.to_f64()).product()),
        ReduceOp::Prod => |line| T::from_i64(line.iter().fold(1, |product, x| product.wrapping_mul(x.to_i64()))),
        ReduceOp::Max => |line| extreme(line, Ordering::Greater),
        ReduceOp::Min => |line| extreme(line, Ordering::Less),
        ReduceOp::Any => |line| T::from_i64(line.iter().any(|x| x.to_i64() != 0).into()),
        ReduceOp::All => |line| T::from_i64(line.iter().all(|x| x.to_i64() != 0).into()),
        _ => return None,
    })
}

/// Whether a value replaces the extreme so far: if it is more extreme, or if it is NaN and that is not. The first of
/// equal values stays.
pub(crate) fn replaces<T: Element>(value: T, best: T, wanted: Ordering) -> bool {
    match value.partial_cmp(&best) {
        Some(order) => order == wanted,
        None => !is_nan(best),
    }
}

fn is_nan<T: Element>(value: T) -> bool {
    value.partial_cmp(&value).is_none()
}

pub(crate) fn arg_reduce(op: ArgOp, x: &ToyTensor, axis: usize, keepdims: bool) -> Result<ToyTensor> {
    let wanted = match op {
        ArgOp::Max => Ordering::Greater,
        ArgOp::Min => Ordering::Less,
        _ => return Err(unknown(op.name())),
    };
    let (shape, len) = (x.shape().reduced(Axes::one(axis), keepdims), x.shape()[axis]);
    let x = permute(x, with_last(Axes::one(axis), x.shape().rank())?);
    typed!(op.name(), x.dtype(), [f32 f64 i64 bool], T => {
        let position = |line: &[T]| {
            (1..line.len()).fold(0, |best, i| if replaces(line[i], line[best], wanted) { i } else { best }) as i64
        };
        let positions = collect(lines(&x.values::<T>()?, shape.numel(), len).map(position))?;
        Ok(ToyTensor::new(shape, positions))
    })
}

pub(crate) fn cumsum(x: &ToyTensor, axis: usize) -> Result<ToyTensor> {
    typed!("cumsum", x.dtype(), [f32 f64 i64], T => along(x, axis, |line: &[T], out: &mut Vec<T>| {
        let mut total = Total::default();
        for &value in line {
            total.add(value);
            out.push(total.value());
        }
    }))
}

/// The sorted values, and the position of each in its line.
pub(crate) fn sort(x: &ToyTensor, axis: usize, descending: bool) -> Result<(ToyTensor, ToyTensor)> {
    let positions = typed!("sort", x.dtype(), [f32 f64 i64 bool], T => along(x, axis, |line: &[T], out| {
        let start = out.len();
        out.extend(0..line.len() as i64);
        out[start..].sort_by(|&i, &j| {
            let (i, j) = if descending { (j, i) } else { (i, j) };
            let (a, b) = (line[i as usize], line[j as usize]);
            a.partial_cmp(&b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
        });
    }))?;
    Ok((gather(x, axis, &positions)?, positions))
}

/// Computes, from each line along an axis, a line of the same length.
fn along<T: Element, R: Element>(x: &ToyTensor, axis: usize, f: impl Fn(&[T], &mut Vec<R>)) -> Result<ToyTensor> {
    let order = with_last(Axes::one(axis), x.shape().rank())?;
    let (len, x) = (x.shape()[axis], permute(x, order));
    let shape: Shape = *x.shape();
    let mut out = room(shape.numel())?;
    if len > 0 {
        x.values::<T>()?.chunks_exact(len).for_each(|line| f(line, &mut out));
    }
    Ok(permute(&ToyTensor::new(shape, out), order.inverse()))
}
