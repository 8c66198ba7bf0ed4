//! Attention that includes the projections, or with ONNX Runtime's forms of masks.

use polygrad_core::{DType, Error, Result, Shape};
use polygrad_tensor::{Attention, Tensor};
use smallvec::smallvec;

use super::integers::{Factors, real_product, with_bias};
use super::ms;
use crate::graph::malformed;
use crate::import::call::{Call, Made, Results, size, sizes};
use crate::import::ops::attention::{split_heads, turn};
use crate::import::ops::gather::take;
use crate::import::ops::matmul::product;
use crate::import::ops::row::rows;

rows! {
    ms("Attention", |c| {
        let qkv = with_bias(c, product(c, &c.x(0)?, &c.x(1)?)?, 2)?;
        projected(c, &qkv, 3, 4, Some(5))
    });
    ms("QAttention", |c| {
        let factors = Factors { a: 0, b: 1, scales: [3, 4], zeros: [6, 7], bias: 2 };
        for i in [3, 4] {
            c.untracked(i)?;
        }
        projected(c, &real_product(c, &factors)?, 5, 8, None)
    });
    ms("MultiHeadAttention", multi_head);
    ms("RotaryEmbedding", rotary);
}

/// What ONNX Runtime adds to the scores of keys that are masked.
const MASKED: f64 = -10_000.0;

/// Fails for options that only ONNX Runtime's own generation loop uses.
fn refuse(c: &Call<'_>, flags: &[&str]) -> Result<()> {
    match flags.iter().find(|flag| c.flag(flag, false).unwrap_or(true)) {
        None => Ok(()),
        Some(flag) => Err(Error::unsupported(format!("{flag} is not computed here"))
            .with_hint("export the model without buffers that are shared or turned inside of attention")),
    }
}

/// The number of heads, which must be given.
pub(super) fn heads(c: &Call<'_>, name: &str) -> Result<usize> {
    match c.count(name, 0)? {
        0 => Err(malformed(format!("{name} is 0"))),
        heads => Ok(heads),
    }
}

/// Attention on the output of one projection: queries, keys and values `[N, S, …]` side by side.
fn projected(c: &Call<'_>, qkv: &Tensor, mask: usize, past: usize, bias: Option<usize>) -> Results {
    refuse(c, &["do_rotary", "past_present_share_buffer"])?;
    let shape = qkv.shape();
    let (&[_, queries, all], heads) = (shape.dims(), heads(c, "num_heads")?) else {
        return Err(Error::shape(format!("{shape} is not [N, S, features]")));
    };
    let parts = match c.int_list("qkv_hidden_sizes")? {
        Some(list) => sizes(list)?.to_vec(),
        None => vec![all / 3; 3],
    };
    if parts.len() != 3 || parts.iter().fold(0, |sum: usize, part| sum.saturating_add(*part)) != all {
        return Err(Error::shape(format!("{all} features are not parts of {parts:?}")));
    }
    let part = |i: usize| split_heads(&qkv.narrow(2, parts[..i].iter().sum(), parts[i])?, heads);
    let (q, mut k, mut v) = (part(0)?, part(1)?, part(2)?);
    if let Some(past) = c.opt(past)? {
        let fits = past.rank() == 5 && past.shape()[0] == 2;
        if !fits {
            return Err(Error::shape(format!("a past of shape {}", past.shape())));
        }
        k = Tensor::cat(&[&past.select(0, 0)?, &k], 2)?;
        v = Tensor::cat(&[&past.select(0, 1)?, &v], 2)?;
    }
    let mut results: Made = smallvec![];
    if c.wants(1) {
        results.push(Tensor::stack(&[&k, &v], 0)?.into());
    }
    let keys = k.shape()[2];
    let bias = biases(c, mask, bias, [shape[0], queries, keys])?;
    results.insert(0, attend(c, [&q, &k, &v], bias)?.into());
    Ok(results)
}

/// The output `[N, S, heads · D]`.
fn attend(c: &Call<'_>, [q, k, v]: [&Tensor; 3], bias: Option<Tensor>) -> Result<Tensor> {
    let (shape, keys) = (q.shape(), k.shape());
    if keys[..2] != shape[..2] || keys[3] != shape[3] || v.shape()[..3] != keys[..3] {
        return Err(Error::shape(format!(
            "queries {shape}, keys {keys} and values {}",
            v.shape()
        )));
    }
    c.reserve(&[shape[0], shape[1], shape[2], keys[2]], q.dtype())?;
    // The default of 0 means no scale is given.
    let scale = match c.float("scale", 0.0)? {
        0.0 => 1.0 / (shape[3].max(1) as f64).sqrt(),
        scale => scale,
    };
    let bias = bias.map(|bias| bias.to_dtype(q.dtype())).transpose()?;
    joined(&q.scaled_dot_product_attention(k, v, Attention::new().mask(bias.as_ref()).scale(scale))?)
}

/// `[N, heads, S, D]` as `[N, S, heads · D]`.
pub(super) fn joined(y: &Tensor) -> Result<Tensor> {
    let shape = y.shape();
    y.permute([0, 2, 1, 3])?
        .reshape([shape[0], shape[2], shape[1] * shape[3]])
}

/// The bias of the scores: from the mask in one of its forms, the attribute `unidirectional`, and an operand.
fn biases(
    c: &Call<'_>,
    mask: usize,
    bias: Option<usize>,
    [batch, queries, keys]: [usize; 3],
) -> Result<Option<Tensor>> {
    let masked = c.float("mask_filter_value", MASKED)?;
    let mut sum: Option<Tensor> = None;
    let mut add = |x: Tensor| -> Result<()> {
        sum = Some(match sum.take() {
            None => x,
            Some(sum) => (sum + x)?,
        });
        Ok(())
    };
    if c.has(mask) {
        let seen = seen(c, mask, [batch, queries, keys])?;
        add((seen.logical_not()?.to_dtype(DType::F32)? * masked)?)?;
    }
    if let Some(bias) = bias.map(|i| c.opt(i)).transpose()?.flatten() {
        let whole = Shape::new(&[batch, heads(c, "num_heads")?, queries, keys])?;
        if bias.rank() != 4 || bias.shape().broadcast(&whole)? != whole {
            return Err(Error::shape(format!(
                "an attention_bias of shape {} for {whole}",
                bias.shape()
            )));
        }
        add(bias.to_dtype(DType::F32)?)?;
    }
    if !c.flag("unidirectional", false)? {
        return Ok(sum);
    }
    // If the mask hides all keys, they can still be seen; later keys cannot.
    let later = later(c, queries, keys)?;
    let sum = match sum {
        Some(sum) => sum,
        None => c.full(&[queries, keys], 0.0, DType::F32)?,
    };
    let whole = sum.shape().broadcast(&later.shape())?;
    c.reserve(&whole, DType::F32)?;
    sum.expand(whole)?.masked_fill(&later, f64::NEG_INFINITY).map(Some)
}

/// A mask `[S, T]` of the keys after each query. The last query is at the position of the last key.
fn later(c: &Call<'_>, queries: usize, keys: usize) -> Result<Tensor> {
    c.reserve(&[queries, keys], DType::F32)?;
    let past = keys.saturating_sub(queries) as i64;
    let at = |extent: usize, from: i64, dims: &[usize]| c.make(c.collect((0..extent).map(|i| i as i64 + from))?, dims);
    at(keys, 0, &[1, keys])?.gt(&at(queries, past, &[queries, 1])?)
}

/// The keys that a mask leaves visible, as bools that broadcast to `[N, heads, S, T]`. The mask has a number for each
/// key, for each query and key, or for each row: the end of its keys, optionally followed by the beginnings.
fn seen(c: &Call<'_>, i: usize, [batch, queries, keys]: [usize; 3]) -> Result<Tensor> {
    let mask = c.x(i)?;
    let places = || c.make(c.collect((0..keys).map(|i| i as i64))?, &[1, 1, 1, keys]);
    let each = |from: usize| {
        mask.narrow(0, from, batch)?
            .to_dtype(DType::I64)?
            .reshape([batch, 1, 1, 1])
    };
    match *mask.shape().dims() {
        [count] if count == batch => places()?.lt(&each(0)?),
        [count] if count == 2 * batch => places()?.lt(&each(0)?)?.logical_and(&places()?.ge(&each(batch)?)?),
        [n, t] if [n, t] == [batch, keys] => mask.gt(0i64)?.reshape([batch, 1, 1, keys]),
        [n, s, t] if [n, s, t] == [batch, queries, keys] => mask.gt(0i64)?.reshape([batch, 1, queries, keys]),
        _ => Err(Error::shape(format!(
            "a mask of shape {} for {batch} rows of {queries} queries and {keys} keys",
            mask.shape()
        ))),
    }
}

fn multi_head(c: &Call<'_>) -> Results {
    for (i, what) in [(8, "past_sequence_length"), (9, "cache_indirection")] {
        if c.has(i) {
            return Err(Error::unsupported(format!("{what} is not computed here"))
                .with_hint("export the model without a buffer that past and present share"));
        }
    }
    if c.wants(3) {
        return Err(Error::unsupported("the output qk is not computed here"));
    }
    let count = heads(c, "num_heads")?;
    let (query, key, value) = (c.x(0)?, c.x(1)?, c.x(2)?);
    if query.rank() != 3 || key.rank() != value.rank() {
        return Err(Error::shape(format!(
            "query {}, key {} and value {}: packed ones are not computed here",
            query.shape(),
            key.shape(),
            value.shape()
        )));
    }
    let wide = [&query, &key, &value].map(|x| if x.rank() == 3 { x.shape()[2] } else { 0 });
    let mut start = 0;
    let mut part = |x: &Tensor, width: usize| -> Result<Tensor> {
        let from = start;
        start += width;
        match c.opt(3)? {
            // Keys that are split into heads already include the bias.
            Some(bias) if x.rank() == 3 => {
                let all: usize = wide.iter().sum();
                if bias.rank() != 1 || bias.numel() < all {
                    return Err(Error::shape(format!("a bias of shape {} for {all}", bias.shape())));
                }
                split_heads(&(x + bias.narrow(0, from, width)?)?, count)
            }
            _ => split_heads(x, count),
        }
    };
    let (q, mut k, mut v) = (part(&query, wide[0])?, part(&key, wide[1])?, part(&value, wide[2])?);
    if let (Some(past_key), Some(past_value)) = (c.opt(6)?, c.opt(7)?) {
        k = Tensor::cat(&[&past_key, &k], 2)?;
        v = Tensor::cat(&[&past_value, &v], 2)?;
    }
    let (shape, keys) = (q.shape(), k.shape()[2]);
    let bias = biases(c, 4, Some(5), [shape[0], shape[2], keys])?;
    Ok(smallvec![attend(c, [&q, &k, &v], bias)?.into(), k.into(), v.into()])
}

fn rotary(c: &Call<'_>) -> Results {
    refuse(c, &["is_packed_batching"])?;
    let x = c.x(0)?;
    let shape = x.shape();
    let cos = c.x(2)?;
    let half = cos.shape().last().copied().unwrap_or(0);
    let (given, turned) = (c.count("num_heads", 0)?, size(c.int("rotary_embedding_dim", 0)?)?);
    let apart = match shape.rank() {
        4 => x.permute([0, 2, 1, 3])?,
        3 if given > 0 => split_heads(&x, given)?.permute([0, 2, 1, 3])?,
        // If the number of heads is unknown, a head is as wide as the table.
        3 if half > 0 => split_heads(&x, shape[2] / (2 * half))?.permute([0, 2, 1, 3])?,
        _ => return Err(Error::shape(format!("{shape} and tables of shape {}", cos.shape()))),
    };
    let places = positions(c, 1, apart.shape()[0], apart.shape()[1])?;
    let turned = if turned == 0 { apart.shape()[3] } else { turned };
    let y = turned_by(c, &apart, [2, 3], &places, turned, c.flag("interleaved", false)?)?;
    let y = match c.float("scale", 1.0)? {
        1.0 => y,
        scale => (y * scale)?,
    };
    Ok(smallvec![
        match shape.rank() {
            4 => y.permute([0, 2, 1, 3])?,
            _ => y.reshape(shape)?,
        }
        .into()
    ])
}

/// Positions `[N, S]`: the operand, or consecutive numbers from its only element on.
fn positions(c: &Call<'_>, i: usize, batch: usize, steps: usize) -> Result<Tensor> {
    let given = c.x(i)?.to_dtype(DType::I64)?;
    match *given.shape().dims() {
        [1] => c.make(c.collect((0..steps).map(|i| i as i64))?, &[1, steps])? + given,
        [n, s] if n == batch && s == steps => Ok(given),
        _ => Err(Error::shape(format!(
            "positions of shape {} for {batch} rows of {steps} steps",
            given.shape()
        ))),
    }
}

/// `[N, S, heads, D]` rotated by the rows of two tables at positions `[N, S]` or `[1, S]`.
pub(super) fn turned_by(
    c: &Call<'_>,
    x: &Tensor,
    tables: [usize; 2],
    places: &Tensor,
    turned: usize,
    interleaved: bool,
) -> Result<Tensor> {
    let table = |i: usize| -> Result<Tensor> {
        let table = c.x(i)?;
        let fits = table.rank() == 2 && table.shape()[1].saturating_mul(2) == turned && turned <= x.shape()[3];
        if !fits || turned == 0 {
            return Err(Error::shape(format!(
                "operand {i} of shape {} for {turned} features of {}",
                table.shape(),
                x.shape()
            )));
        }
        take(c, &table, 0, places)?.unsqueeze(2)
    };
    turn(x, [&table(tables[0])?, &table(tables[1])?], turned, interleaved)
}
