//! Reductions and running sums.

use std::cmp::Ordering;

use polygrad_core::{ArgOp, Axes, DType, Error, ReduceOp, Result};

use crate::number::Sum;
use crate::positions::{coordinates, lines, position};
use crate::support::{self, Rule};
use crate::tensor::{ReferenceTensor, Values};

type ReduceRule = Rule<fn(&[f64]) -> f64, fn(&[i64]) -> i64>;

pub(crate) fn reduce(op: ReduceOp, x: &ReferenceTensor, axes: Axes, keepdims: bool) -> Result<ReferenceTensor> {
    let rule = rule(op, x.dtype())?;
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let kept = x.shape().reduced(axes, true);
    let shape = x.shape().reduced(axes, keepdims);
    let mut groups = vec![Vec::new(); kept.numel()];
    for i in 0..x.shape().numel() {
        let mut at = coordinates(i, x.shape());
        for axis in axes.iter() {
            at[axis] = 0;
        }
        groups[position(&at, &kept)].push(i);
    }
    if op.needs_elements() && groups.iter().any(Vec::is_empty) {
        return Err(Error::invalid("a reduction over no elements has no value")
            .with_op(op.name())
            .with_operands([(*x.shape(), x.dtype())]));
    }
    match (rule, x.values()) {
        (Rule::Real(f), Values::Real(x_values)) => {
            Ok(ReferenceTensor::real(shape, x.dtype(), of_groups(x_values, &groups, f)))
        }
        (Rule::Int(f), Values::Int(x_values)) => {
            Ok(ReferenceTensor::int(shape, x.dtype(), of_groups(x_values, &groups, f)))
        }
        _ => Err(support::refused(op.name(), x.dtype())),
    }
}

fn of_groups<T: Copy>(values: &[T], groups: &[Vec<usize>], f: fn(&[T]) -> T) -> Vec<T> {
    let group_values = |group: &Vec<usize>| group.iter().map(|&i| values[i]).collect::<Vec<T>>();
    groups.iter().map(|group| f(&group_values(group))).collect()
}

fn rule(op: ReduceOp, dtype: DType) -> Result<ReduceRule> {
    let rule = match dtype {
        DType::Bool => bool_rule(op).map(Rule::Int),
        dtype if dtype.is_float() => real_rule(op).map(Rule::Real),
        _ => int_rule(op).map(Rule::Int),
    };
    rule.ok_or_else(|| support::refused(op.name(), dtype))
}

fn real_rule(op: ReduceOp) -> Option<fn(&[f64]) -> f64> {
    Some(match op {
        ReduceOp::Sum => |x| Sum::of(x.iter().copied()),
        ReduceOp::Mean => |x| Sum::of(x.iter().copied()) / x.len() as f64,
        ReduceOp::Prod => |x| x.iter().product(),
        ReduceOp::Max => |x| {
            x.iter()
                .fold(f64::NEG_INFINITY, |a, &b| if a > b || a.is_nan() { a } else { b })
        },
        ReduceOp::Min => |x| {
            x.iter()
                .fold(f64::INFINITY, |a, &b| if a < b || a.is_nan() { a } else { b })
        },
        _ => return None,
    })
}

fn int_rule(op: ReduceOp) -> Option<fn(&[i64]) -> i64> {
    Some(match op {
        ReduceOp::Sum => |x| x.iter().fold(0, |a, &b| a.wrapping_add(b)),
        ReduceOp::Prod => |x| x.iter().fold(1, |a, &b| a.wrapping_mul(b)),
        ReduceOp::Max => |x| x.iter().fold(i64::MIN, |a, &b| a.max(b)),
        ReduceOp::Min => |x| x.iter().fold(i64::MAX, |a, &b| a.min(b)),
        _ => return None,
    })
}

fn bool_rule(op: ReduceOp) -> Option<fn(&[i64]) -> i64> {
    Some(match op {
        ReduceOp::Any | ReduceOp::Max => |x| x.iter().fold(0, |a, &b| a | b),
        ReduceOp::All | ReduceOp::Min => |x| x.iter().fold(1, |a, &b| a & b),
        _ => return None,
    })
}

pub(crate) fn arg_reduce(op: ArgOp, x: &ReferenceTensor, axis: usize, keepdims: bool) -> Result<ReferenceTensor> {
    let extreme = arg_rule(op)?;
    let shape = x.shape().reduced(Axes::one(axis), keepdims);
    let mut out = Vec::new();
    for line in lines(x.shape(), axis) {
        let best = line.positions().enumerate().reduce(|best, other| {
            let (b, o) = (best.1, other.1);
            let wins = match (x.values().is_nan(b), x.values().is_nan(o)) {
                (false, false) => x.values().compare(o, b) == extreme,
                (best_is_nan, other_is_nan) => other_is_nan && !best_is_nan,
            };
            if wins { other } else { best }
        });
        match best {
            Some((index, _)) => out.push(index as i64),
            None => {
                return Err(Error::invalid("a line of no elements has no extreme")
                    .with_op(op.name())
                    .with_operands([(*x.shape(), x.dtype())]));
            }
        }
    }
    Ok(ReferenceTensor::int(shape, DType::I64, out))
}

/// How an element must compare with the best so far to replace it.
fn arg_rule(op: ArgOp) -> Result<Ordering> {
    match op {
        ArgOp::Max => Ok(Ordering::Greater),
        ArgOp::Min => Ok(Ordering::Less),
        _ => Err(support::unknown(op.name())),
    }
}

pub(crate) fn cumsum(x: &ReferenceTensor, axis: usize) -> Result<ReferenceTensor> {
    support::numbers("cumsum", x.dtype())?;
    let (shape, dtype) = (*x.shape(), x.dtype());
    Ok(match x.values() {
        Values::Real(x) => {
            let mut out = x.clone();
            for line in lines(&shape, axis) {
                let mut sum = Sum::default();
                for i in line.positions() {
                    sum.add(x[i]);
                    out[i] = sum.value();
                }
            }
            ReferenceTensor::real(shape, dtype, out)
        }
        Values::Int(x) => {
            let mut out = x.clone();
            for line in lines(&shape, axis) {
                let mut sum = 0i64;
                for i in line.positions() {
                    sum = sum.wrapping_add(x[i]);
                    out[i] = sum;
                }
            }
            ReferenceTensor::int(shape, dtype, out)
        }
    })
}
