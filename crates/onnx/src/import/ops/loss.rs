//! Losses, and causal convolution and linear attention, which carry a state.

use polygrad_core::{Activation, DType, Error, Result};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, Results, one};

rows! {
    Row::new("NegativeLogLikelihoodLoss", 12, |c| one(likelihood(c, &c.x(0)?)?)).wide();
    Row::new("SoftmaxCrossEntropyLoss", 12, |c| {
        let log_prob = c.x(0)?.log_softmax(1)?;
        Ok(smallvec![likelihood(c, &log_prob)?.into(), log_prob.into()])
    }).wide();
    Row::new("CausalConvWithState", 27, causal_conv);
    Row::new("LinearAttention", 27, linear_attention);
}

/// The negative log-likelihoods at the targets, reduced as the attribute says.
fn likelihood(c: &Call<'_>, x: &Tensor) -> Result<Tensor> {
    let (shape, target) = (x.shape(), c.x(1)?.to_dtype(DType::I64)?);
    let (&[n, classes, ..], targets) = (shape.dims(), target.shape()) else {
        return Err(Error::shape(format!("{shape} is not [N, C, …]")));
    };
    let places: usize = shape[2..].iter().product();
    if targets.numel() != n * places {
        return Err(Error::shape(format!("targets of shape {targets} for {shape}")));
    }
    let x = x.reshape([n, classes, places])?;
    let target = target.reshape([n, 1, places])?;
    let ignored = match c.opt_int("ignore_index")? {
        Some(index) => Some(target.eq(index)?),
        None => None,
    };
    let safe = match &ignored {
        Some(ignored) => target.masked_fill(ignored, 0i64)?,
        None => target,
    };
    let mut weight = match c.opt(2)? {
        Some(weight) => weight
            .index_select(0, &safe.reshape([n * places])?)?
            .reshape([n, 1, places])?,
        None => c.full(&[n, 1, places], 1.0, x.dtype())?,
    };
    if let Some(ignored) = &ignored {
        weight = weight.masked_fill(ignored, 0.0)?;
    }
    let losses = (x.gather(1, &safe)?.neg()? * &weight)?;
    match c.text("reduction", "mean")? {
        "none" => losses.reshape(targets),
        "sum" => losses.sum_all(),
        "mean" => losses.sum_all()? / weight.sum_all()?,
        other => Err(malformed(format!("there is no reduction {other:?}"))),
    }
}

fn causal_conv(c: &Call<'_>) -> Results {
    let (x, weight) = (c.x(0)?, c.x(1)?);
    let (&[n, channels, _], &[_, 1, k]) = (x.shape().dims(), weight.shape().dims()) else {
        return Err(Error::shape(format!(
            "{} and {} are not [N, C, L] and [C, 1, k]",
            x.shape(),
            weight.shape()
        )));
    };
    if k == 0 {
        return Err(Error::shape("a kernel of nothing"));
    }
    let past = match c.opt(3)? {
        Some(past) => past,
        None => c.full(&[n, channels, k - 1], 0.0, x.dtype())?,
    };
    let padded = Tensor::cat(&[&past, &x], 2)?;
    let params = polygrad_core::ConvParams {
        groups: channels,
        ..Default::default()
    };
    let y = super::conv::biased(padded.conv(&weight, None, &params)?, c.opt(2)?)?;
    let y = match c.text("activation", "none")? {
        "none" => y,
        "silu" | "swish" => y.activation(Activation::Silu)?,
        other => return Err(malformed(format!("there is no activation {other:?}"))),
    };
    let length = padded.shape()[2];
    let state = padded.narrow(2, (length + 1).saturating_sub(k), k - 1)?;
    Ok(smallvec![y.into(), state.into()])
}

/// `[N, T, heads · D]` as f32 `[N, heads, T, D]`.
fn heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let &[n, t, width] = x.shape().dims() else {
        return Err(Error::shape(format!("{} is not of rank 3", x.shape())));
    };
    if heads == 0 || width % heads != 0 {
        return Err(Error::shape(format!(
            "{} cannot be split into {heads} heads",
            x.shape()
        )));
    }
    x.to_dtype(DType::F32)?
        .reshape([n, t, heads, width / heads])?
        .permute([0, 2, 1, 3])
}

fn linear_attention(c: &Call<'_>) -> Results {
    let (q_heads, kv_heads) = (c.count("q_num_heads", 0)?, c.count("kv_num_heads", 0)?);
    if kv_heads == 0 || q_heads % kv_heads != 0 {
        return Err(malformed(format!("{q_heads} heads of queries for {kv_heads}")));
    }
    let query = c.x(0)?;
    let (q, k, v) = (
        heads(&query, q_heads)?,
        heads(&c.x(1)?, kv_heads)?,
        heads(&c.x(2)?, kv_heads)?,
    );
    let (gated, corrected) = match c.text("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(malformed(format!("there is no update_rule {other:?}"))),
    };
    let [n, t] = [q.shape()[0], q.shape()[2]];
    let (dk, dv) = (q.shape()[3], v.shape()[3]);
    let decay = if gated {
        Some(heads(&c.x(4)?, kv_heads)?.exp()?)
    } else {
        None
    };
    let beta = if corrected {
        let beta = c.x(5)?;
        Some(heads(&beta, beta.dims().get(2).copied().unwrap_or(0))?)
    } else {
        None
    };
    let along = |x: &Tensor| x.shape()[0] == n && x.shape()[2] == t && [1, kv_heads].contains(&x.shape()[1]);
    let all = [&k, &v].into_iter().chain(&decay).chain(&beta);
    let widths = k.shape()[3] == dk && decay.as_ref().is_none_or(|decay| [1, dk].contains(&decay.shape()[3]));
    if !all.into_iter().all(along) || !widths {
        return Err(Error::shape("query, key, value, decay and beta do not fit each other"));
    }
    let past = c.opt(3)?;
    if let Some(past) = past.as_ref().filter(|past| past.dims() != [n, kv_heads, dk, dv]) {
        return Err(Error::shape(format!(
            "a past of shape {}, not [{n}, {kv_heads}, {dk}, {dv}]",
            past.shape()
        )));
    }
    let state_dtype = past.as_ref().map_or(query.dtype(), Tensor::dtype);
    let mut state = match past {
        Some(past) => past.to_dtype(DType::F32)?,
        None => c.full(&[n, kv_heads, dk, dv], 0.0, DType::F32)?,
    };
    let scale = match c.float("scale", 0.0)? {
        0.0 => 1.0 / (dk.max(1) as f64).sqrt(),
        scale => scale,
    };
    let mut outputs = Vec::with_capacity(t);
    for step in 0..t {
        c.limits.step()?;
        let at = |x: &Tensor| x.narrow(2, step, 1);
        let column = at(&k)?.transpose(2, 3)?;
        if let Some(decay) = &decay {
            state = (state * at(decay)?.transpose(2, 3)?)?;
        }
        let mut value = at(&v)?;
        if let Some(beta) = &beta {
            value = (at(beta)? * (value - at(&k)?.matmul(&state)?)?)?;
        }
        state = (state + column.matmul(&value)?)?;
        let read = if q_heads == kv_heads {
            state.clone()
        } else {
            state.repeat_interleave(q_heads / kv_heads, 1)?
        };
        outputs.push((at(&q)?.matmul(&read)? * scale)?);
    }
    let y = match outputs.as_slice() {
        [] => c.full(&[n, q_heads, 0, dv], 0.0, DType::F32)?,
        steps => Tensor::cat(&steps.iter().collect::<Vec<_>>(), 2)?,
    };
    let y = y
        .permute([0, 2, 1, 3])?
        .reshape([n, t, q_heads * dv])?
        .to_dtype(query.dtype())?;
    Ok(smallvec![y.into(), state.to_dtype(state_dtype)?.into()])
}
