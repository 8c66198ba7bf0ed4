//! Writing of elements at indices.

use polygrad_core::{BinaryOp, DType, Error, Result};
use polygrad_tensor::Tensor;

use super::gather::{from_front, linear};
use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, one};

rows! {
    Row::new("Scatter", 9, elements).like(0);
    Row::new("ScatterElements", 11, elements).like(0);
    Row::new("ScatterND", 11, scatter_nd).like(0);
    Row::new("TensorScatter", 24, tensor_scatter).like(0);
}

fn elements(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let axis = c.axis("axis", 0, x.rank())?;
    let index = from_front(&c.x(1)?, x.shape()[axis])?;
    one(put(&x, axis, &index, &c.x(2)?, c.text("reduction", "none")?)?)
}

/// Writes `src` at `index`, combined with the elements there.
fn put(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor, how: &str) -> Result<Tensor> {
    let at = axis as isize;
    if x.dtype() == DType::Bool && matches!(how, "add" | "mul") {
        // Or and And, as in ONNX Runtime: the maximum and the minimum of the bools at one index.
        let op = if how == "add" { BinaryOp::Or } else { BinaryOp::And };
        return extreme(x, axis, index, src, op);
    }
    match how {
        "none" => x.scatter(at, index, src),
        "add" => x.scatter_add(at, index, src),
        "mul" => x.scatter_mul(at, index, src),
        "max" => extreme(x, axis, index, src, BinaryOp::Maximum),
        "min" => extreme(x, axis, index, src, BinaryOp::Minimum),
        other => Err(malformed(format!("there is no reduction {other:?}"))),
    }
}

/// Slice by slice, so that every element of a repeated index counts.
fn extreme(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor, op: BinaryOp) -> Result<Tensor> {
    let at = axis as isize;
    let mut out = x.clone();
    if index.numel() == 0 {
        return Ok(out);
    }
    for i in 0..index.shape()[axis] {
        let (index, src) = (index.narrow(at, i, 1)?, src.narrow(at, i, 1)?);
        let there = out.gather(at, &index)?;
        out = out.scatter(at, &index, &there.binary(op, &src)?)?;
    }
    Ok(out)
}

fn scatter_nd(c: &Call<'_>) -> Results {
    let (x, index, src) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let shape = x.shape();
    let place = linear(&shape, &index, 0)?;
    let k = index.shape()[index.rank() - 1];
    let rows: usize = shape[..k].iter().product();
    let rest: usize = shape[k..].iter().product();
    let count = place.numel();
    let mut wanted = place.dims();
    wanted.extend(&shape[k..]);
    if src.dims() != wanted {
        return Err(Error::shape(format!(
            "updates of shape {}, not {wanted:?}",
            src.shape()
        )));
    }
    if count == 0 || rest == 0 {
        return one(x);
    }
    let place = place.reshape([count, 1])?.expand([count, rest])?;
    let how = c.text("reduction", "none")?;
    let out = put(&x.reshape([rows, rest])?, 0, &place, &src.reshape([count, rest])?, how)?;
    one(out.reshape(shape)?)
}

/// Writes new entries into caches, starting at an index for each sample.
fn tensor_scatter(c: &Call<'_>) -> Results {
    let (cache, update) = (c.x(0)?, c.x(1)?);
    let shape = cache.shape();
    let axis = c.axis("axis", -2, shape.rank())?;
    let fresh = update.shape();
    if axis == 0 || fresh.rank() != shape.rank() || fresh.with_dim(axis, shape[axis]) != shape {
        return Err(Error::shape(format!(
            "an update of shape {fresh} for a cache of shape {shape} along axis {axis}"
        )));
    }
    let starts = c.opt_ints(2)?.unwrap_or_else(|| List::from_elem(0, shape[0]));
    let circular = match c.text("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(malformed(format!("TensorScatter has no mode {other:?}"))),
    };
    if starts.len() != shape[0] {
        return Err(Error::shape(format!(
            "{} places for {} samples",
            starts.len(),
            shape[0]
        )));
    }
    c.reserve(&[starts.len(), fresh[axis]], DType::I64)?;
    let (length, count) = (shape[axis] as i64, fresh[axis] as i64);
    let mut index = c.list(starts.len().saturating_mul(fresh[axis]))?;
    for start in starts {
        for i in 0..count {
            let at = start.saturating_add(i);
            index.push(if circular && length > 0 {
                at.rem_euclid(length)
            } else {
                at
            });
        }
    }
    let mut dims = vec![1; shape.rank()];
    (dims[0], dims[axis]) = (shape[0], fresh[axis]);
    let index: Tensor = c.make(index, &dims)?.to_dtype(DType::I64)?.expand(fresh)?;
    one(cache.scatter(axis as isize, &index, &update)?)
}
