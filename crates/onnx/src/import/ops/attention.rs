//! Attention and rotary positions.

use polygrad_core::{Activation, DType, Error, Result};
use polygrad_tensor::{Attention, Tensor};
use smallvec::smallvec;

use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, one, size};

rows! {
    Row::new("Attention", 23, attention);
    Row::new("FlexAttention", 1, flex_attention).of("ai.onnx.preview");
    Row::new("RotaryEmbedding", 23, rotary);
}

/// `[N, S, heads · D]` as `[N, heads, S, D]`.
pub(super) fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let shape = x.shape();
    if shape.rank() == 4 {
        return Ok(x.clone());
    }
    if shape.rank() != 3 || heads == 0 || !shape[2].is_multiple_of(heads) {
        return Err(Error::shape(format!("{shape} cannot be split into {heads} heads")));
    }
    x.reshape([shape[0], shape[1], heads, shape[2] / heads])?
        .permute([0, 2, 1, 3])
}

/// Which keys a query sees, depending on their positions.
struct VisibleKeys {
    causal: bool,
    left: i64,
    right: i64,
    /// The number of keys before the first query, and the number of keys, for each sample or for all.
    offsets: Vec<i64>,
    lengths: Option<List<i64>>,
}

impl VisibleKeys {
    fn is_free(&self) -> bool {
        !self.causal && self.left < 0 && self.right < 0 && self.lengths.is_none()
    }

    fn sees(&self, sample: usize, query: i64, key: i64) -> bool {
        let at = query.saturating_add(self.offsets[sample.min(self.offsets.len() - 1)]);
        let distance = at.saturating_sub(key);
        (!self.causal || distance >= 0)
            && (self.left < 0 || distance <= self.left)
            && (self.right < 0 || -distance <= self.right)
            && self.lengths.as_ref().is_none_or(|lengths| key < lengths[sample])
    }
}

/// The mask operand and the mask of [`VisibleKeys`] combined: bool, or numbers to add.
fn mask(c: &Call<'_>, sight: &VisibleKeys, queries: usize, keys: usize, dtype: DType) -> Result<Option<Tensor>> {
    let mut given = c.opt(3)?;
    if let Some(mask) = &given {
        let missing = match mask.shape().last() {
            Some(&extent) => keys.saturating_sub(extent),
            None => 0,
        };
        if missing > 0 {
            // A mask may leave out keys at the end, which are then hidden.
            let mut borders = vec![(0, 0); mask.rank()];
            borders[mask.rank() - 1].1 = missing;
            let bool = mask.dtype() == DType::Bool;
            given = Some(if bool {
                mask.pad(&borders, false)?
            } else {
                mask.pad(&borders, f64::NEG_INFINITY)?
            });
        }
    }
    if sight.is_free() {
        return given
            .map(|mask| {
                if mask.dtype() == DType::Bool {
                    Ok(mask)
                } else {
                    mask.to_dtype(dtype)
                }
            })
            .transpose();
    }
    let samples = sight.offsets.len();
    let dims = if samples == 1 {
        vec![queries, keys]
    } else {
        vec![samples, 1, queries, keys]
    };
    c.reserve(&dims, DType::Bool)?;
    let mut seen = c.list(samples * queries * keys)?;
    for sample in 0..samples {
        for query in 0..queries as i64 {
            seen.extend((0..keys as i64).map(|key| sight.sees(sample, query, key)));
        }
    }
    let seen = c.make(seen, &dims)?;
    Ok(Some(match given {
        None => seen,
        Some(mask) if mask.dtype() == DType::Bool => mask.logical_and(&seen)?,
        Some(mask) => {
            let mask = mask.to_dtype(dtype)?;
            Tensor::where_(&seen, &mask, &Tensor::full((), f64::NEG_INFINITY, (c.device, dtype))?)?
        }
    }))
}

fn attention(c: &Call<'_>) -> Results {
    let (q, k, v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let flat = q.rank() == 3;
    let (q_heads, kv_heads) = (c.count("q_num_heads", 0)?, c.count("kv_num_heads", 0)?);
    let q = split_heads(&q, q_heads)?;
    let (mut k, mut v) = (split_heads(&k, kv_heads)?, split_heads(&v, kv_heads)?);
    if [q.rank(), k.rank(), v.rank()] != [4; 3] {
        return Err(Error::shape("query, key and value are not all of rank 3 or 4"));
    }
    let mut past = 0;
    if let (Some(past_key), Some(past_value)) = (c.opt(4)?, c.opt(5)?) {
        past = past_key.dims().get(2).copied().unwrap_or(0);
        k = Tensor::cat(&[&past_key, &k], 2)?;
        v = Tensor::cat(&[&past_value, &v], 2)?;
    }
    let present = [k.clone(), v.clone()];
    let (queries, keys) = (q.shape()[2], k.shape()[2]);
    let lengths = c.opt_ints(6)?;
    if lengths
        .as_ref()
        .is_some_and(|lengths| lengths.len() != q.shape()[0] || lengths.is_empty())
    {
        return Err(Error::shape(format!("nonpad_kv_seqlen for {}", q.shape())));
    }
    let sight = VisibleKeys {
        causal: c.flag("is_causal", false)?,
        left: c.int("left_window_size", -1)?,
        right: c.int("right_window_size", -1)?,
        offsets: match &lengths {
            Some(lengths) => lengths
                .iter()
                .map(|length| length.saturating_sub(queries as i64))
                .collect(),
            None => vec![past as i64],
        },
        lengths,
    };
    let (heads, shared) = (q.shape()[1], k.shape()[1]);
    if shared == 0 || heads % shared != 0 || v.shape()[1] != shared {
        return Err(Error::shape(format!(
            "{heads} heads of queries for {shared} of keys and {} of values",
            v.shape()[1]
        )));
    }
    if heads != shared {
        k = k.repeat_interleave(heads / shared, 1)?;
        v = v.repeat_interleave(heads / shared, 1)?;
    }
    c.reserve(&[q.shape()[0], heads, queries, keys], q.dtype())?;
    let mask = mask(c, &sight, queries, keys, q.dtype())?;
    let scale = c.float("scale", 1.0 / (q.shape()[3].max(1) as f64).sqrt())?;
    let softcap = c.float("softcap", 0.0)?;
    let (y, scores) = if softcap > 0.0 || c.wants(3) || c.attribute("softmax_precision").is_some() {
        let (y, scores) = spelled_out(c, [&q, &k, &v], mask, scale, softcap)?;
        (y, Some(scores))
    } else {
        (
            q.scaled_dot_product_attention(&k, &v, Attention::new().mask(mask.as_ref()).scale(scale))?,
            None,
        )
    };
    let y = if flat {
        let shape = y.shape();
        y.permute([0, 2, 1, 3])?
            .reshape([shape[0], shape[2], shape[1] * shape[3]])?
    } else {
        y
    };
    Ok(std::iter::once(y)
        .chain(present)
        .chain(scores)
        .map(Into::into)
        .collect())
}

/// The dtype of the softmax, if the node says it. Without f64, the widest float dtype of the device.
fn precision(c: &Call<'_>) -> Result<Option<DType>> {
    let dtype = c.element_attribute("softmax_precision")?.map(|element| element.dtype());
    let dtype = dtype.transpose()?;
    Ok(if dtype == Some(DType::F64) {
        Some(c.wide())
    } else {
        dtype
    })
}

/// Computes attention step by step, if an intermediate result is requested: the output, and the scores of
/// `qk_matmul_output_mode`.
fn spelled_out(
    c: &Call<'_>,
    [q, k, v]: [&Tensor; 3],
    mask: Option<Tensor>,
    scale: f64,
    softcap: f64,
) -> Result<(Tensor, Tensor)> {
    let dtype = q.dtype();
    let root = scale.abs().sqrt();
    let mut scores = (q * root)?.matmul(&(k * (root * scale.signum()))?.t()?)?;
    if softcap > 0.0 {
        scores = ((scores / softcap)?.activation(Activation::Tanh)? * softcap)?;
    }
    let bias = match mask {
        Some(mask) if mask.dtype() == DType::Bool => {
            let zero = Tensor::full((), 0.0, (c.device, dtype))?;
            Some(Tensor::where_(&mask, &zero, &zero.full_like(f64::NEG_INFINITY)?)?)
        }
        other => other,
    };
    let masked = match &bias {
        Some(bias) => (&scores + bias)?,
        None => scores.clone(),
    };
    let precision = precision(c)?.unwrap_or(dtype);
    let mut weights = masked.to_dtype(precision)?.softmax(-1)?;
    if let Some(bias) = &bias {
        let unseen = bias.amax_keepdim([-1])?.eq(f64::NEG_INFINITY)?;
        weights = weights.masked_fill(&unseen, 0.0)?;
    }
    let weights = weights.to_dtype(dtype)?;
    let y = weights.matmul(v)?;
    let shown = match c.int("qk_matmul_output_mode", 0)? {
        0 | 1 => scores,
        2 => masked,
        3 => weights,
        mode => return Err(malformed(format!("qk_matmul_output_mode is {mode}, not 0 to 3"))),
    };
    Ok((y, shown))
}

/// Attention whose scores and weights are transformed by bodies of the node.
fn flex_attention(c: &Call<'_>) -> Results {
    let (q, mut k, mut v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    if [q.rank(), k.rank(), v.rank()] != [4; 3] {
        return Err(Error::shape("query, key and value are not all of rank 4"));
    }
    let (heads, shared) = (q.shape()[1], k.shape()[1]);
    if shared == 0 || heads % shared != 0 || v.shape()[1] != shared {
        return Err(Error::shape(format!("{heads} heads of queries for {shared} of keys")));
    }
    if heads != shared {
        k = k.repeat_interleave(heads / shared, 1)?;
        v = v.repeat_interleave(heads / shared, 1)?;
    }
    c.reserve(&[q.shape()[0], heads, q.shape()[2], k.shape()[2]], DType::F64)?;
    let scale = c.float("scale", 1.0 / (q.shape()[3].max(1) as f64).sqrt())?;
    let dtype = precision(c)?.unwrap_or(q.dtype().promote(DType::F32));
    let through = |name: &str, x: Tensor| -> Result<Tensor> {
        if !c.bodies.has(name) {
            return Ok(x);
        }
        let results = c.bodies.run(name, smallvec![x.into()])?;
        let value = results
            .first()
            .ok_or_else(|| malformed(format!("{name} gives nothing")))?;
        value.tensor(c.device)?.to_dtype(dtype)
    };
    let root = scale.abs().sqrt();
    let scores = (&q * root)?
        .matmul(&(k * (root * scale.signum()))?.t()?)?
        .to_dtype(dtype)?;
    let weights = through("prob_mod", through("score_mod", scores)?.softmax(-1)?)?;
    one(weights.matmul(&v.to_dtype(dtype)?)?.to_dtype(v.dtype())?)
}

fn rotary(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    // To [N, S, heads, D].
    let apart = match shape.rank() {
        4 => x.permute([0, 2, 1, 3])?,
        3 => {
            let heads = c.count("num_heads", 0)?;
            if heads == 0 || !shape[2].is_multiple_of(heads) {
                return Err(Error::shape(format!("{shape} cannot be split into {heads} heads")));
            }
            x.reshape([shape[0], shape[1], heads, shape[2] / heads])?
        }
        _ => return Err(Error::shape(format!("{shape} is not of rank 3 or 4"))),
    };
    let full = apart.shape()[3];
    let turned = match size(c.int("rotary_embedding_dim", 0)?)? {
        0 => full,
        part if part <= full => part,
        part => return Err(malformed(format!("{part} of {full} features are to be turned"))),
    };
    if turned % 2 != 0 {
        return Err(malformed(format!("{turned} features are not pairs")));
    }
    let cache = |i: usize| -> Result<Tensor> {
        let cache = c.x(i)?;
        let cache = match c.opt(3)? {
            Some(places) => super::gather::take(c, &cache, 0, &places)?,
            None => cache,
        };
        let fits = |axis: usize| [1, apart.shape()[axis]].contains(&cache.shape()[axis]);
        if cache.rank() != 3 || cache.shape()[2] != turned / 2 || !fits(0) || !fits(1) {
            return Err(Error::shape(format!(
                "a cache of shape {} for {turned} features",
                cache.shape()
            )));
        }
        cache.unsqueeze(2)
    };
    let y = turn(&apart, [&cache(1)?, &cache(2)?], turned, c.flag("interleaved", false)?)?;
    one(if shape.rank() == 4 {
        y.permute([0, 2, 1, 3])?
    } else {
        y.reshape(shape)?
    })
}

/// Rotates the first `turned` features of `[N, S, heads, D]` by angles, whose cosines and sines are `[N, S, 1, turned /
/// 2]` or broadcast to it. Pairs are neighbours if `interleaved`, else half of the features apart.
pub(super) fn turn(x: &Tensor, [cos, sin]: [&Tensor; 2], turned: usize, interleaved: bool) -> Result<Tensor> {
    let full = x.shape()[3];
    let part = x.narrow(3, 0, turned)?;
    let done = if interleaved {
        let dims = part.shape();
        let pairs = part.reshape([dims[0], dims[1], dims[2], turned / 2, 2])?;
        let (a, b) = (pairs.select(4, 0)?, pairs.select(4, 1)?);
        let (real, imaginary) = (((cos * &a)? - (sin * &b)?)?, ((sin * &a)? + (cos * &b)?)?);
        Tensor::stack(&[&real, &imaginary], -1)?.reshape(dims)?
    } else {
        part.rotary(cos, sin)?
    };
    match full == turned {
        true => Ok(done),
        false => Tensor::cat(&[&done, &x.narrow(3, turned, full - turned)?], 3),
    }
}
