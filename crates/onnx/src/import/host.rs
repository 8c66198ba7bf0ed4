//! Arithmetic on small integers, computed on the host.
//!
//! Shapes are computed by a few ops (Shape, Gather, Concat, arithmetic …) on a few numbers. If those numbers were on
//! the device, a Reshape would have to wait to read them back. So nodes whose operands are all small integer tensors on
//! the host are computed there. Anything else is computed on the device, with the same result.

use polygrad_core::{DType, HostTensor, Result, Shape};

use super::call::{Call, axes, axis};
use super::ops::shape::{range, reshaped};
use super::value::Value;

/// The most elements of an operand or result of these host ops.
pub(crate) const SMALL: usize = 4096;

/// Integers or bools, in row-major order.
struct Ints {
    dtype: DType,
    shape: Shape,
    values: Vec<i64>,
}

/// The result of a node whose operands are all on the host already, if it is one of the ops that compute shapes.
pub(crate) fn compute(c: &Call<'_>) -> Result<Option<Value>> {
    if !c.node.domain.is_empty() || c.inputs.is_empty() {
        return Ok(None);
    }
    // Most nodes have an operand that is on the device, large or not an integer. For them this check must be cheap.
    if !c.inputs.iter().all(|input| input.as_ref().is_some_and(is_small)) {
        return Ok(None);
    }
    let operands = c.inputs.iter().flatten().filter_map(Value::on_host);
    let operands = operands
        .map(|literal| ints(literal.host()))
        .collect::<Result<Vec<_>>>()?;
    let Some(result) = evaluate(c, &operands)? else {
        return Ok(None);
    };
    let host = HostTensor::new(result.shape, result.values)?.cast(result.dtype);
    Ok(Some(host.into()))
}

/// Whether it is a small integer or bool tensor on the host.
fn is_small(value: &Value) -> bool {
    value.on_host().is_some_and(|literal| {
        let host = literal.host();
        matches!(host.dtype(), DType::I32 | DType::I64 | DType::Bool)
            && host.shape().numel() <= SMALL
            && !literal.element().is_widened()
    })
}

fn ints(host: &HostTensor) -> Result<Ints> {
    Ok(Ints {
        dtype: host.dtype(),
        shape: *host.shape(),
        values: host.cast(DType::I64).to_vec()?,
    })
}

/// `None` for an op or form that is not computed here, or an overflow.
fn evaluate(c: &Call<'_>, operands: &[Ints]) -> Result<Option<Ints>> {
    let first = &operands[0];
    let like = |shape: Shape, values: Vec<i64>| {
        Some(Ints {
            dtype: first.dtype,
            shape,
            values,
        })
    };
    Ok(match (c.node.op_type.as_str(), operands) {
        ("Identity", [x]) => like(x.shape, x.values.clone()),
        ("Add", [a, b]) => arithmetic(a, b, i64::checked_add),
        ("Sub", [a, b]) => arithmetic(a, b, i64::checked_sub),
        ("Mul", [a, b]) => arithmetic(a, b, i64::checked_mul),
        ("Div", [a, b]) => arithmetic(a, b, i64::checked_div),
        ("Mod", [a, b]) if !c.flag("fmod", false)? => arithmetic(a, b, |a, b| {
            let rest = a.checked_rem(b)?;
            Some(if rest != 0 && (rest < 0) != (b < 0) {
                rest + b
            } else {
                rest
            })
        }),
        ("Max", [a, b]) => arithmetic(a, b, |a, b| Some(a.max(b))),
        ("Min", [a, b]) => arithmetic(a, b, |a, b| Some(a.min(b))),
        ("Equal", [a, b]) => pairwise(a, b, DType::Bool, |a, b| Some(i64::from(a == b))),
        ("Less", [a, b]) => pairwise(a, b, DType::Bool, |a, b| Some(i64::from(a < b))),
        ("LessOrEqual", [a, b]) => pairwise(a, b, DType::Bool, |a, b| Some(i64::from(a <= b))),
        ("Greater", [a, b]) => pairwise(a, b, DType::Bool, |a, b| Some(i64::from(a > b))),
        ("GreaterOrEqual", [a, b]) => pairwise(a, b, DType::Bool, |a, b| Some(i64::from(a >= b))),
        ("And", [a, b]) => pairwise(a, b, DType::Bool, |a, b| Some(a & b)),
        ("Or", [a, b]) => pairwise(a, b, DType::Bool, |a, b| Some(a | b)),
        ("Not", [x]) => like(x.shape, x.values.iter().map(|v| 1 - v).collect()),
        ("Neg", [x]) => x
            .values
            .iter()
            .map(|v| v.checked_neg())
            .collect::<Option<_>>()
            .and_then(|v| like(x.shape, v)),
        ("Abs", [x]) => x
            .values
            .iter()
            .map(|v| v.checked_abs())
            .collect::<Option<_>>()
            .and_then(|v| like(x.shape, v)),
        ("Where", [condition, a, b]) if a.dtype == b.dtype => choose(condition, a, b),
        ("Cast", [x]) => cast(c, x)?,
        ("Reshape", [x, wanted]) => like(
            reshaped(&x.shape, &wanted.values, c.flag("allowzero", false)?)?,
            x.values.clone(),
        ),
        ("Squeeze" | "Unsqueeze", [x, ..]) if x.shape.rank() <= 1 && x.values.len() == 1 => one_element(c, x)?,
        ("Concat", parts)
            if parts
                .iter()
                .all(|part| part.shape.rank() == 1 && part.dtype == first.dtype) =>
        {
            let values: Vec<i64> = parts.iter().flat_map(|part| part.values.iter().copied()).collect();
            like(Shape::new(&[values.len()])?, values)
        }
        ("Gather", [x, index]) if x.shape.rank() == 1 && c.int("axis", 0)? <= 0 => {
            let picked = index
                .values
                .iter()
                .map(|&at| axis(at, x.values.len()).map(|at| x.values[at]));
            like(index.shape, picked.collect::<Result<_>>()?)
        }
        ("Slice", [x, ..]) if x.shape.rank() == 1 => slice(c, x, operands)?,
        ("ReduceProd", [x, ..]) if x.shape.rank() == 1 => {
            let product = x.values.iter().try_fold(1i64, |product, &v| product.checked_mul(v));
            let shape = if c.flag("keepdims", true)? {
                Shape::new(&[1])?
            } else {
                Shape::SCALAR
            };
            let noop = c.flag("noop_with_empty_axes", false)?;
            product.filter(|_| !noop).and_then(|product| like(shape, vec![product]))
        }
        ("Range", [start, end, step]) => counted(start, end, step)?,
        _ => None,
    })
}

fn arithmetic(a: &Ints, b: &Ints, op: impl Fn(i64, i64) -> Option<i64>) -> Option<Ints> {
    if a.dtype != b.dtype || a.dtype == DType::Bool {
        return None;
    }
    let fits = |v: &i64| a.dtype == DType::I64 || i32::try_from(*v).is_ok();
    pairwise(a, b, a.dtype, |a, b| op(a, b).filter(&fits))
}

/// Applies `op` to operands of one shape, or of which one has a single element.
fn pairwise(a: &Ints, b: &Ints, dtype: DType, op: impl Fn(i64, i64) -> Option<i64>) -> Option<Ints> {
    let shape = a.shape.broadcast(&b.shape).ok()?;
    let count = shape.numel();
    if a.dtype != b.dtype || count > SMALL || [a, b].iter().any(|x| x.values.len() != count && x.values.len() != 1) {
        return None;
    }
    let at = |x: &Ints, i: usize| x.values[if x.values.len() == 1 { 0 } else { i }];
    let values = (0..count).map(|i| op(at(a, i), at(b, i))).collect::<Option<_>>()?;
    Some(Ints { dtype, shape, values })
}

fn choose(condition: &Ints, a: &Ints, b: &Ints) -> Option<Ints> {
    let shape = condition.shape.broadcast(&a.shape).ok()?.broadcast(&b.shape).ok()?;
    let count = shape.numel();
    let all = [condition, a, b];
    if count > SMALL || all.iter().any(|x| x.values.len() != count && x.values.len() != 1) {
        return None;
    }
    let at = |x: &Ints, i: usize| x.values[if x.values.len() == 1 { 0 } else { i }];
    let values = (0..count).map(|i| if at(condition, i) != 0 { at(a, i) } else { at(b, i) });
    Some(Ints {
        dtype: a.dtype,
        shape,
        values: values.collect(),
    })
}

fn cast(c: &Call<'_>, x: &Ints) -> Result<Option<Ints>> {
    let Some(to) = c.element_attribute("to")? else {
        return Ok(None);
    };
    let dtype = match to.dtype()? {
        _ if to.is_widened() => return Ok(None),
        dtype @ (DType::I64 | DType::Bool) => dtype,
        DType::I32 if x.values.iter().all(|&v| i32::try_from(v).is_ok()) => DType::I32,
        _ => return Ok(None),
    };
    let values = x
        .values
        .iter()
        .map(|&v| if dtype == DType::Bool { i64::from(v != 0) } else { v })
        .collect();
    Ok(Some(Ints {
        dtype,
        shape: x.shape,
        values,
    }))
}

/// Squeeze and Unsqueeze between a number and a list of one number.
fn one_element(c: &Call<'_>, x: &Ints) -> Result<Option<Ints>> {
    let shape = match (c.node.op_type.as_str(), c.ints_either(1, "axes")?) {
        ("Squeeze", Some(list)) if x.shape.rank() == 1 => {
            axes(&list, 1)?;
            if list.is_empty() { x.shape } else { Shape::SCALAR }
        }
        ("Squeeze", None) => Shape::SCALAR,
        ("Unsqueeze", Some(list)) if x.shape.rank() == 0 => {
            axes(&list, list.len())?;
            Shape::new(&vec![1; list.len()])?
        }
        _ => return Ok(None),
    };
    Ok(Some(Ints {
        dtype: x.dtype,
        shape,
        values: x.values.clone(),
    }))
}

fn slice(c: &Call<'_>, x: &Ints, operands: &[Ints]) -> Result<Option<Ints>> {
    let bounds = match operands {
        [_] => {
            let number = |name: &str| Ok::<_, polygrad_core::Error>(c.int_list(name)?.map(<[i64]>::to_vec));
            (number("starts")?, number("ends")?, None)
        }
        [_, starts, ends, rest @ ..] => (
            Some(starts.values.clone()),
            Some(ends.values.clone()),
            rest.get(1).map(|steps| steps.values.clone()),
        ),
        _ => return Ok(None),
    };
    let (Some(starts), Some(ends), steps) = bounds else {
        return Ok(None);
    };
    let (&[start], &[end]) = (starts.as_slice(), ends.as_slice()) else {
        return Ok(None);
    };
    let step = match steps.as_deref() {
        None => 1,
        Some(&[step]) => step,
        Some(_) => return Ok(None),
    };
    let cut = range(start, end, step, x.values.len())?;
    let values: Vec<i64> = (0..cut.len)
        .map(|i| x.values[(cut.start as isize + i as isize * cut.step) as usize])
        .collect();
    Ok(Some(Ints {
        dtype: x.dtype,
        shape: Shape::new(&[values.len()])?,
        values,
    }))
}

fn counted(start: &Ints, end: &Ints, step: &Ints) -> Result<Option<Ints>> {
    let (&[start_at], &[end_at], &[by]) = (start.values.as_slice(), end.values.as_slice(), step.values.as_slice())
    else {
        return Ok(None);
    };
    let span = i128::from(end_at) - i128::from(start_at);
    if by == 0 || span.unsigned_abs() > SMALL as u128 * u128::from(by.unsigned_abs()) {
        return Ok(None);
    }
    let count = if span.signum() == i128::from(by.signum()) {
        span.unsigned_abs().div_ceil(u128::from(by.unsigned_abs()))
    } else {
        0
    };
    let values: Vec<i64> = (0..count as i64).map(|i| start_at + i * by).collect();
    Ok(Some(Ints {
        dtype: start.dtype,
        shape: Shape::new(&[values.len()])?,
        values,
    }))
}
