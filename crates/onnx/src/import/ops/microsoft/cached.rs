//! Grouped-query attention with a cache of keys and values from earlier steps.

use polygrad_core::{Activation, DType, Error, Result, Shape};
use polygrad_tensor::{Attention, Tensor};
use smallvec::smallvec;

use super::attention::{heads, joined, turned_by};
use super::ms;
use crate::graph::malformed;
use crate::import::call::{Call, List, Results};
use crate::import::ops::attention::split_heads;
use crate::import::ops::row::rows;

rows! {
    ms("GroupQueryAttention", grouped);
}

/// Unsupported operands and attributes.
const REFUSED: [(usize, &str); 5] = [
    (12, "k_scale"),
    (13, "v_scale"),
    (14, "q_norm_weight"),
    (15, "k_norm_weight"),
    (16, "query_seqlens"),
];

fn refuse(c: &Call<'_>) -> Result<()> {
    let operand = REFUSED.iter().find(|(i, _)| c.has(*i)).map(|(_, name)| *name);
    let attribute = ["sliding_window_cache", "kv_cache_bit_width"];
    let attribute = attribute.into_iter().find(|name| c.flag(name, false).unwrap_or(true));
    match operand.or(attribute).or(c.wants(3).then_some("output_qk")) {
        None => Ok(()),
        Some(what) => Err(Error::unsupported(format!("{what} is not computed here"))
            .with_hint("export the model with a plain cache of keys and values")),
    }
}

/// The positions of the new steps of each row.
struct Steps {
    /// The number of keys and values of earlier steps.
    past: List<usize>,
    /// The number of new steps in each row.
    new: usize,
    /// The largest number of keys and values in all.
    total: usize,
}

impl Steps {
    fn read(c: &Call<'_>, batch: usize, new: usize) -> Result<Self> {
        let lengths = c.ints(5)?;
        let total = usize::try_from(c.int_scalar(6)?).unwrap_or(0);
        if lengths.len() != batch || total < new {
            return Err(Error::shape(format!(
                "{} lengths and {total} keys in all for {batch} rows of {new} steps",
                lengths.len()
            )));
        }
        // The first steps may be padded at the end; later ones are not.
        let past = lengths.iter().map(|&last| match total == new {
            true => Ok(0),
            false => {
                let past = last.saturating_add(1).saturating_sub(new as i64);
                let past = usize::try_from(past).ok().filter(|past| past + new <= total);
                past.ok_or_else(|| malformed(format!("seqlens_k {last} for {new} new steps of {total}")))
            }
        });
        Ok(Self {
            past: past.collect::<Result<_>>()?,
            new,
            total,
        })
    }

    /// Whether all rows have the full length.
    fn is_even(&self) -> bool {
        self.past.iter().all(|past| past + self.new == self.total)
    }

    /// Positions `[N, S]`.
    fn places(&self, c: &Call<'_>) -> Result<Tensor> {
        let mut places = c.list(self.past.len() * self.new)?;
        for &past in &self.past {
            places.extend((0..self.new).map(|i| (past + i) as i64));
        }
        c.make(places, &[self.past.len(), self.new])
    }

    /// Keys `[N, heads, T, D]`, those of earlier steps first, with room for `extent` keys.
    fn joined(&self, c: &Call<'_>, past: Option<&Tensor>, new: &Tensor, extent: usize) -> Result<Tensor> {
        let shape = new.shape();
        c.reserve(&[shape[0], shape[1], extent, shape[3]], new.dtype())?;
        let Some(old) = past.filter(|_| self.past.iter().any(|&past| past > 0)) else {
            return new.pad(&[(0, 0), (0, 0), (0, extent - self.new), (0, 0)], 0.0);
        };
        let row = |(i, &past): (usize, &usize)| {
            let old = old.narrow(0, i, 1)?.narrow(2, 0, past)?;
            let both = Tensor::cat(&[&old, &new.narrow(0, i, 1)?], 2)?;
            both.pad(&[(0, 0), (0, 0), (0, extent - past - self.new), (0, 0)], 0.0)
        };
        let rows = self.past.iter().enumerate().map(row).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&rows.iter().collect::<Vec<_>>(), 0)
    }

    /// The keys that each query sees: none of later steps, and of earlier ones at most `window`, if that is not
    /// negative. `None` if plain causal attention means the same.
    fn seen(&self, c: &Call<'_>, window: i64, causal: bool) -> Result<Option<Tensor>> {
        if window < 0 && causal && self.is_even() {
            return Ok(None);
        }
        let dims = [self.past.len(), 1, self.new, self.total];
        c.reserve(&dims, DType::Bool)?;
        let mut seen = c.list(dims.iter().product())?;
        for &past in &self.past {
            for at in past as i64..(past + self.new) as i64 {
                let last = if causal { at } else { (past + self.new) as i64 - 1 };
                seen.extend((0..self.total as i64).map(|key| key <= last && (window < 0 || at - key < window)));
            }
        }
        c.make(seen, &dims).map(Some)
    }
}

fn grouped(c: &Call<'_>) -> Results {
    refuse(c)?;
    let (count, shared) = (heads(c, "num_heads")?, heads(c, "kv_num_heads")?);
    if count % shared != 0 {
        return Err(malformed(format!("{count} heads of queries for {shared} of keys")));
    }
    let [q, k, v] = split(c, count, shared)?;
    let (batch, new) = (q.shape()[0], q.shape()[1]);
    let steps = Steps::read(c, batch, new)?;
    let (q, k) = match c.flag("do_rotary", false)? {
        true => {
            let places = match c.opt(9)? {
                Some(places) if places.shape().dims() == [batch, new] => places,
                Some(places) => return Err(Error::shape(format!("positions of shape {}", places.shape()))),
                None => steps.places(c)?,
            };
            let turned = c.shape(7)?.last().copied().unwrap_or(0).saturating_mul(2);
            let pairs = c.flag("rotary_interleaved", false)?;
            let turn = |x: &Tensor| turned_by(c, x, [7, 8], &places, turned, pairs);
            (turn(&q)?, turn(&k)?)
        }
        false => (q, k),
    };
    let by_head = |x: &Tensor| x.permute([0, 2, 1, 3]);
    let (q, k, v) = (by_head(&q)?, by_head(&k)?, by_head(&v)?);
    let old = [c.opt(3)?, c.opt(4)?];
    let room = past_room(&steps, &old, &k)?;
    let extent = room.max(steps.total);
    let (k, v) = (
        steps.joined(c, old[0].as_ref(), &k, extent)?,
        steps.joined(c, old[1].as_ref(), &v, extent)?,
    );
    let present = [k.clone(), v.clone()];
    let each = |x: &Tensor| x.narrow(2, 0, steps.total)?.repeat_interleave(count / shared, 1);
    let y = attend(c, &steps, [&q, &each(&k)?, &each(&v)?])?;
    let [k, v] = present;
    Ok(smallvec![joined(&y)?.into(), k.into(), v.into()])
}

/// Queries, keys and values `[N, S, heads, D]`, which may be packed in one operand.
fn split(c: &Call<'_>, count: usize, shared: usize) -> Result<[Tensor; 3]> {
    let query = c.x(0)?;
    let shape = query.shape();
    if shape.rank() != 3 {
        return Err(Error::shape(format!("a query of shape {shape}, not [N, S, features]")));
    }
    let apart = |x: &Tensor, heads: usize| split_heads(x, heads)?.permute([0, 2, 1, 3]);
    if c.has(1) {
        let (key, value) = (c.x(1)?, c.x(2)?);
        if key.shape()[..] != value.shape()[..] || key.rank() != 3 || key.shape()[..2] != shape[..2] {
            return Err(Error::shape(format!(
                "query {shape}, key {} and value {}",
                key.shape(),
                value.shape()
            )));
        }
        return Ok([apart(&query, count)?, apart(&key, shared)?, apart(&value, shared)?]);
    }
    let all = split_heads(&query, count.saturating_add(shared.saturating_mul(2)))?.permute([0, 2, 1, 3])?;
    Ok([
        all.narrow(2, 0, count)?,
        all.narrow(2, count, shared)?,
        all.narrow(2, count + shared, shared)?,
    ])
}

/// The number of steps that the past has room for. Fails if the past does not fit.
fn past_room(steps: &Steps, old: &[Option<Tensor>; 2], k: &Tensor) -> Result<usize> {
    let needed = steps.past.iter().copied().max().unwrap_or(0);
    let shape = k.shape();
    for old in old.iter().flatten() {
        let dims = old.shape();
        if dims.rank() != 4 || [dims[0], dims[1], dims[3]] != [shape[0], shape[1], shape[3]] || dims[2] < needed {
            return Err(Error::shape(format!(
                "a past of shape {dims} for {needed} steps of {shape}"
            )));
        }
    }
    match old {
        [Some(key), Some(value)] if key.shape()[2] == value.shape()[2] => Ok(key.shape()[2]),
        [None, None] if needed == 0 => Ok(0),
        _ => Err(malformed("past keys and values do not go together")),
    }
}

fn attend(c: &Call<'_>, steps: &Steps, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
    let (shape, dtype) = (q.shape(), q.dtype());
    c.reserve(&[shape[0], shape[1], steps.new, steps.total], dtype)?;
    let scale = match c.float("scale", 0.0)? {
        0.0 => 1.0 / (shape[3].max(1) as f64).sqrt(),
        scale => scale,
    };
    let causal = c.flag("causal", true)?;
    let seen = steps.seen(c, c.int("local_window_size", -1)?, causal)?;
    let cap = c.float("softcap", 0.0)?;
    let sink = sink(c, shape[1], dtype)?;
    let bias = c.opt(10)?;
    if let Some(bias) = &bias {
        let whole = Shape::new(&[shape[0], shape[1], steps.new, steps.total])?;
        if bias.rank() != 4 || bias.shape().broadcast(&whole)? != whole {
            return Err(Error::shape(format!(
                "an attention_bias of shape {} for {whole}",
                bias.shape()
            )));
        }
    }
    if cap == 0.0 && sink.is_none() && bias.is_none() {
        let options = Attention::new().scale(scale);
        return match &seen {
            Some(seen) => q.scaled_dot_product_attention(k, v, options.mask(seen)),
            None => q.scaled_dot_product_attention(k, v, options.causal(true)),
        };
    }
    let mut scores = (q.matmul(&k.t()?)? * scale)?;
    if cap != 0.0 {
        scores = ((scores / cap)?.activation(Activation::Tanh)? * cap)?;
    }
    if let Some(bias) = bias {
        scores = (scores + bias)?;
    }
    let seen = match seen {
        Some(seen) => seen,
        None => steps
            .places(c)?
            .unsqueeze(1)?
            .unsqueeze(-1)?
            .ge(&known(c, steps.total)?)?,
    };
    scores = scores.masked_fill(&seen.logical_not()?.expand(scores.shape())?, f64::NEG_INFINITY)?;
    let Some(sink) = sink else {
        return scores.softmax(-1)?.matmul(v);
    };
    let sink = sink.expand([shape[0], shape[1], steps.new, 1])?;
    let weights = Tensor::cat(&[&scores, &sink], 3)?.softmax(-1)?;
    weights.narrow(3, 0, steps.total)?.matmul(v)
}

/// The positions of all keys.
fn known(c: &Call<'_>, count: usize) -> Result<Tensor> {
    c.make(c.collect((0..count).map(|i| i as i64))?, &[1, 1, 1, count])
}

/// An additional score beside those of the keys, whose attention weight is discarded: one for each head, or 0.
fn sink(c: &Call<'_>, count: usize, dtype: DType) -> Result<Option<Tensor>> {
    match c.opt(11)? {
        Some(sink) if sink.shape().dims() == [count] => sink.to_dtype(dtype)?.reshape([1, count, 1, 1]).map(Some),
        Some(sink) => Err(Error::shape(format!(
            "a head_sink of shape {} for {count} heads",
            sink.shape()
        ))),
        None if c.int("smooth_softmax", -1)? == 1 => c.full(&[1, 1, 1, 1], 0.0, dtype).map(Some),
        None => Ok(None),
    }
}
