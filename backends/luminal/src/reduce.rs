//! Reductions, running sums and sorting: ops on lines of elements.
//!
//! Each moves its axes to the end, by a view, so that a line is a slice of the values. Sums are luminal's, in blocks;
//! luminal's maximum loses NaN.

use std::cmp::Ordering;

use polygrad_core::{ArgOp, Axes, BinaryOp, DType, Element, ReduceOp, Result, Scalar, Shape, collect, room};

use crate::elementwise::binary;
use crate::kernel::{self, Kernel};
use crate::movement::{permute, reshape};
use crate::primitive;
use crate::support::{refused, typed, unknown};
use crate::tensor::{LuminalTensor, Recorded};
use crate::values::Item;

/// The most terms that luminal adds sequentially in f32: few enough to be accurate.
const BLOCK: usize = 64;

/// The order of axes that puts these last.
fn with_last(axes: Axes, rank: usize) -> Result<Axes> {
    let kept = (0..rank).filter(|&axis| !axes.contains(axis));
    Axes::new(kept.chain(axes.iter()))
}

/// The `count` lines of `len` values each; `chunks_exact` does not support length 0.
fn lines<T>(values: &[T], count: usize, len: usize) -> impl ExactSizeIterator<Item = &[T]> {
    (0..count).map(move |i| &values[i * len..(i + 1) * len])
}

pub(crate) fn reduce(op: ReduceOp, x: &LuminalTensor, axes: Axes, keepdims: bool) -> Result<LuminalTensor> {
    let dtype = x.dtype();
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype));
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let shape = x.shape().reduced(axes, keepdims);
    let len: usize = axes.iter().map(|axis| x.shape()[axis]).product();
    let x = permute(x, with_last(axes, x.shape().rank())?);
    if dtype == DType::F32 && shape.numel() > 0 && len > 0 {
        match op {
            ReduceOp::Sum => return reshape(&sum(&x, shape.numel(), len)?, shape),
            ReduceOp::Mean => {
                let count = LuminalTensor::full(Shape::SCALAR, Scalar::Float(len as f64), dtype)?;
                return binary(BinaryOp::Div, &reshape(&sum(&x, shape.numel(), len)?, shape)?, &count);
            }
            _ => {}
        }
    }
    typed!(op.name(), dtype, T => {
        let f = line_rule::<T>(op).ok_or_else(|| unknown(op.name()))?;
        kernel::record(op.name(), [&x], shape, T::DTYPE, move |[x]| {
            Ok(T::tensor(collect(lines(&x.values::<T>()?, shape.numel(), len).map(f))?))
        })
    })
}

/// The sums `[count]` of lines of `len` elements along the last axes. Sums blocks of at most [`BLOCK`], then the
/// blocks' sums, and so on, so that the error grows with the logarithm of the length. A length without suitable
/// divisors is summed by a custom node, in f64.
fn sum(x: &LuminalTensor, count: usize, len: usize) -> Result<LuminalTensor> {
    let mut blocks = Vec::new();
    let mut rest = len;
    while rest > BLOCK {
        match (8..=BLOCK).rev().find(|&block| rest.is_multiple_of(block)) {
            Some(block) => {
                blocks.push(block);
                rest /= block;
            }
            None => return wide_sum(x, count, len),
        }
    }
    blocks.push(rest);
    let mut out = x.clone();
    let mut left = len;
    for block in blocks {
        left /= block;
        let lines = reshape(&out, Shape::new(&[count * left, block])?)?;
        out = primitive::sum(&lines, 1, Shape::new(&[count * left])?)?;
    }
    Ok(out)
}

fn wide_sum(x: &LuminalTensor, count: usize, len: usize) -> Result<LuminalTensor> {
    kernel::record("sum", [x], Shape::new(&[count])?, DType::F32, move |[x]| {
        let sum = |line: &[f32]| line.iter().map(|&x| f64::from(x)).sum::<f64>() as f32;
        Ok(f32::tensor(collect(lines(&x.values::<f32>()?, count, len).map(sum))?))
    })
}

fn line_rule<T: Item>(op: ReduceOp) -> Option<fn(&[T]) -> T> {
    fn extreme<T: Item>(line: &[T], wanted: Ordering) -> T {
        let beyond = |best, other| if replaces(other, best, wanted) { other } else { best };
        // Callers make sure that there are elements.
        line.iter().copied().reduce(beyond).unwrap_or_default()
    }
    Some(match op {
        // For floats, these are reached only if there is nothing to add.
        ReduceOp::Sum => |line| T::from_i64(line.iter().fold(0, |sum, x| sum.wrapping_add(x.to_i64()))),
        ReduceOp::Mean => |_| T::from_f64(f64::NAN),
        ReduceOp::Prod if T::DTYPE.is_float() => |line| T::from_f64(line.iter().map(|x| x.to_f64()).product()),
        ReduceOp::Prod => |line| T::from_i64(line.iter().fold(1, |product, x| product.wrapping_mul(x.to_i64()))),
        ReduceOp::Max => |line| extreme(line, Ordering::Greater),
        ReduceOp::Min => |line| extreme(line, Ordering::Less),
        ReduceOp::Any => |line| T::from_i64(line.iter().any(|x| x.to_i64() != 0).into()),
        ReduceOp::All => |line| T::from_i64(line.iter().all(|x| x.to_i64() != 0).into()),
        _ => return None,
    })
}

/// Whether a value replaces the extreme so far: if it is beyond it, or if it is the first NaN. Thus the first of equal
/// values stays.
pub(crate) fn replaces<T: Element>(value: T, best: T, wanted: Ordering) -> bool {
    match value.partial_cmp(&best) {
        Some(order) => order == wanted,
        None => !is_nan(best),
    }
}

fn is_nan<T: Element>(value: T) -> bool {
    value.partial_cmp(&value).is_none()
}

pub(crate) fn arg_reduce(op: ArgOp, x: &LuminalTensor, axis: usize, keepdims: bool) -> Result<LuminalTensor> {
    let wanted = match op {
        ArgOp::Max => Ordering::Greater,
        ArgOp::Min => Ordering::Less,
        _ => return Err(unknown(op.name())),
    };
    let (shape, len) = (x.shape().reduced(Axes::one(axis), keepdims), x.shape()[axis]);
    let x = permute(x, with_last(Axes::one(axis), x.shape().rank())?);
    typed!(op.name(), x.dtype(), T => {
        kernel::record(op.name(), [&x], shape, DType::I64, move |[x]| {
            let position = |line: &[T]| {
                (1..line.len()).fold(0, |best, i| if replaces(line[i], line[best], wanted) { i } else { best }) as i64
            };
            Ok(i64::tensor(collect(lines(&x.values::<T>()?, shape.numel(), len).map(position))?))
        })
    })
}

pub(crate) fn cumsum(x: &LuminalTensor, axis: usize) -> Result<LuminalTensor> {
    fn running<T: Item, S: Copy>(line: &[T], out: &mut Vec<T>, mut total: S, add: fn(S, T) -> S, value: fn(S) -> T) {
        for &x in line {
            total = add(total, x);
            out.push(value(total));
        }
    }
    let order = with_last(Axes::one(axis), x.shape().rank())?;
    let x = permute(x, order);
    let out = match x.dtype() {
        DType::F32 => along("cumsum", &x, |line: &[f32], out| {
            running(line, out, 0.0, |sum: f64, x| sum + f64::from(x), |sum| sum as f32);
        }),
        DType::I64 => along("cumsum", &x, |line: &[i64], out| {
            running(line, out, 0, i64::wrapping_add, |sum| sum);
        }),
        other => Err(refused("cumsum", other)),
    }?;
    Ok(permute(&out, order.inverse()))
}

/// Computes a line of the same length from each line along the last axis.
fn along<T: Item>(
    name: &'static str,
    x: &LuminalTensor,
    f: impl Fn(&[T], &mut Vec<T>) + Send + Sync + 'static,
) -> Result<LuminalTensor> {
    let shape = *x.shape();
    kernel::record(name, [x], shape, T::DTYPE, move |[x]| {
        let mut out = room(shape.numel())?;
        if shape.numel() > 0 {
            x.values::<T>()?
                .chunks_exact(shape[shape.rank() - 1])
                .for_each(|line| f(line, &mut out));
        }
        Ok(T::tensor(out))
    })
}

/// The sorted values, and the position of each in its line.
pub(crate) fn sort(x: &LuminalTensor, axis: usize, descending: bool) -> Result<(LuminalTensor, LuminalTensor)> {
    fn of<T: Item>(x: &LuminalTensor, descending: bool) -> Result<(LuminalTensor, LuminalTensor)> {
        let shape = *x.shape();
        let kernel = Kernel::new("sort", move |xs| {
            let values = xs[0].values::<T>()?;
            let (mut sorted, mut positions) = (room(values.len())?, room(values.len())?);
            for line in values.chunks_exact(shape.dims().last().copied().unwrap_or(1).max(1)) {
                let start = positions.len();
                positions.extend(0..line.len() as i64);
                positions[start..].sort_by(|&i, &j| {
                    let (i, j) = if descending { (j, i) } else { (i, j) };
                    let (a, b) = (line[i as usize], line[j as usize]);
                    a.partial_cmp(&b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
                });
                sorted.extend(positions[start..].iter().map(|&i| line[i as usize]));
            }
            Ok(vec![T::tensor(sorted), i64::tensor(positions)])
        });
        let outputs = [(shape, T::DTYPE), (shape, DType::I64)];
        let mut made = LuminalTensor::record(Recorded::Kernel(kernel), vec![x.clone()], &outputs)?;
        let positions = made.remove(1);
        Ok((made.remove(0), positions))
    }
    let order = with_last(Axes::one(axis), x.shape().rank())?;
    let x = permute(x, order);
    let (values, positions) = typed!("sort", x.dtype(), T => of::<T>(&x, descending))?;
    Ok((permute(&values, order.inverse()), permute(&positions, order.inverse())))
}
