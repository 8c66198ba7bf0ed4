//! Normalizations of sums.

use polygrad_core::{DType, Error, Result, Shape};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::ms;
use crate::graph::malformed;
use crate::import::call::{Call, Made, Results};
use crate::import::ops::gather::take;
use crate::import::ops::row::{Row, rows};

rows! {
    // ONNX Runtime writes it in the domain ai.onnx, which has no such op.
    Row::new("SimplifiedLayerNormalization", 1, simplified);
    ms("SimplifiedLayerNormalization", simplified);
    ms("SkipLayerNormalization", |c| skip(c, 3, 4, |x, scale, bias, eps| {
        x.layer_norm(Some(scale), bias, 1, eps)
    }, false));
    ms("SkipSimplifiedLayerNormalization", |c| skip(c, usize::MAX, 3, |x, scale, _, eps| {
        x.rms_norm(Some(scale), 1, eps)
    }, true));
    ms("EmbedLayerNormalization", embed);
}

/// Epsilon if the node does not give it.
const EPSILON: f64 = 1e-12;

fn simplified(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let axis = c.axis("axis", -1, x.rank())?;
    let count = x.rank() - axis;
    let eps = c.float("epsilon", 1e-5)?;
    let up = x.to_dtype(x.dtype().promote(DType::F32))?;
    let tail = Shape::new(&x.shape()[axis..])?;
    let scale = c.x(1)?.to_dtype(up.dtype())?.expand(tail)?;
    let mut results: Made = smallvec![up.rms_norm(Some(&scale), count, eps)?.to_dtype(x.dtype())?.into()];
    if c.wants(1) {
        let over: Vec<isize> = (axis..x.rank()).map(|axis| axis as isize).collect();
        results.push(inverse(&up.square()?.mean_keepdim(&over)?, eps)?.into());
    }
    Ok(results)
}

/// `1 / √(x + eps)`.
fn inverse(x: &Tensor, eps: f64) -> Result<Tensor> {
    (x + eps)?.sqrt()?.reciprocal()
}

/// A vector along the last axis of `shape`, in f32 or f64.
fn vector(c: &Call<'_>, i: usize, shape: &Shape, dtype: DType) -> Result<Option<Tensor>> {
    let Some(x) = c.opt(i)? else { return Ok(None) };
    if x.rank() != 1 || shape.last() != Some(&x.numel()) {
        return Err(Error::shape(format!("operand {i} of shape {} for {shape}", x.shape())));
    }
    x.to_dtype(dtype).map(Some)
}

type Normal = fn(&Tensor, &Tensor, Option<&Tensor>, f64) -> Result<Tensor>;

/// The sum of two operands and a bias, normalized along the last axis: with its mean, the inverse of its deviation, and
/// the sum itself. If `plain`, the mean is not subtracted.
fn skip(c: &Call<'_>, beta: usize, bias: usize, normal: Normal, plain: bool) -> Results {
    let (x, rest) = (c.x(0)?, c.x(1)?);
    let (shape, dtype) = (x.shape(), x.dtype());
    let wide = dtype.promote(DType::F32);
    let fits = shape.rank() >= rest.rank()
        && (1..=rest.rank()).all(|i| {
            let (extent, whole) = (rest.shape()[rest.rank() - i], shape[shape.rank() - i]);
            extent == whole || (extent == 1 && i > 2)
        });
    if shape.rank() < 2 || !fits {
        return Err(Error::shape(format!("{} is added to {shape}", rest.shape())));
    }
    let mut sum = (x.to_dtype(wide)? + rest.to_dtype(wide)?)?;
    if let Some(bias) = vector(c, bias, &shape, wide)? {
        sum = (sum + bias)?;
    }
    let scale = vector(c, 2, &shape, wide)?.ok_or_else(|| malformed("operand 2 is missing"))?;
    let beta = vector(c, beta, &shape, wide)?;
    let eps = c.float("epsilon", EPSILON)?;
    let y = normal(&sum, &scale, beta.as_ref(), eps)?.to_dtype(dtype)?;
    let mut results: Made = smallvec![y.into()];
    if c.node.outputs.len() > 1 {
        let mean = sum.mean_keepdim([-1])?;
        let square = match plain {
            true => sum.square()?.mean_keepdim([-1])?,
            false => sum.variance_keepdim([-1], 0i64)?,
        };
        results.push(mean.into());
        results.push(inverse(&square, eps)?.into());
        results.push(sum.to_dtype(dtype)?.into());
    }
    Ok(results)
}

/// The sum of embeddings of words, positions and segments, normalized.
fn embed(c: &Call<'_>) -> Results {
    let ids = c.x(0)?;
    let &[batch, steps] = ids.shape().dims() else {
        return Err(Error::shape(format!("words of shape {}, not [N, S]", ids.shape())));
    };
    let table = |i: usize, places: &Tensor| -> Result<Tensor> {
        let table = c.x(i)?;
        if table.rank() != 2 {
            return Err(Error::shape(format!(
                "operand {i} of shape {} is no table",
                table.shape()
            )));
        }
        take(c, &table, 0, places)
    };
    let positions = match c.opt(8)? {
        Some(places) => places,
        None => c.make(c.collect((0..steps).map(|i| i as i64))?, &[1, steps])?,
    };
    let mut sum = (table(2, &ids)? + table(3, &positions)?)?;
    if let Some(segments) = c.opt(1)? {
        sum = (sum + table(4, &segments)?)?;
    }
    let (shape, dtype) = (sum.shape(), sum.dtype());
    let wide = dtype.promote(DType::F32);
    let scale = vector(c, 5, &shape, wide)?;
    let bias = vector(c, 6, &shape, wide)?;
    let y = sum
        .to_dtype(wide)?
        .layer_norm(scale.as_ref(), bias.as_ref(), 1, c.float("epsilon", EPSILON)?)?
        .to_dtype(dtype)?;
    let mut results: Made = smallvec![y.into()];
    if c.node.outputs.len() > 1 {
        // The number of unmasked words in each row.
        let counts = match c.opt(7)? {
            Some(mask) => mask.eq(1i64)?.to_dtype(DType::I64)?.sum([1])?.to_dtype(DType::I32)?,
            None => c.full(&[batch], 0i64, DType::I32)?,
        };
        results.push(counts.into());
        results.push(sum.into());
    }
    Ok(results)
}
