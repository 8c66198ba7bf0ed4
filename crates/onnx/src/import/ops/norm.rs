//! Normalizations.

use polygrad_core::{Activation, DType, Error, Result, Shape};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::reduce::norm;
use super::row::{Row, rows};
use crate::graph::{ElementType, malformed};
use crate::import::call::{Call, Results, axes, isizes, one};

rows! {
    Row::new("BatchNormalization", 7, batch_norm).wide_like(&[0, 3, 4]);
    Row::new("InstanceNormalization", 6, instance_norm).wide();
    // It was introduced in version 17, but ONNX Runtime's optimizer writes it to older files.
    Row::new("LayerNormalization", 1, layer_norm);
    Row::new("RMSNormalization", 23, rms_norm);
    Row::new("GroupNormalization", 18, group_norm).wide();
    Row::new("LpNormalization", 1, lp_norm).wide();
    Row::new("MeanVarianceNormalization", 9, mean_variance).wide();
    Row::new("LRN", 1, local_response).wide();
    Row::new("SwiGLU", 27, swiglu).wide();
}

/// One number for each channel, in a shape that broadcasts to a tensor `[N, C, …]`.
fn channels(x: &Tensor, rank: usize) -> Result<Tensor> {
    let mut dims = vec![1; rank];
    dims[1] = x.numel();
    x.reshape(dims)
}

fn batch_norm(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let rank = x.rank();
    if rank < 2 {
        return Err(Error::shape(format!("{} is not [N, C, …]", x.shape())));
    }
    if !c.flag("spatial", true)? {
        return Err(
            Error::unsupported("statistics of each position (spatial = 0) are not computed here")
                .with_hint("export the model for version 9 of the ops or newer"),
        );
    }
    let eps = c.float("epsilon", 1e-5)?;
    let training = c.version >= 14 && c.flag("training_mode", false)?;
    let (scale, bias, mean, var) = (c.x(1)?, c.x(2)?, c.x(3)?, c.x(4)?);
    for (i, each) in [&scale, &bias, &mean, &var].into_iter().enumerate() {
        if each.dims() != [x.shape()[1]] {
            return Err(Error::shape(format!(
                "operand {} of shape {} for {}",
                i + 1,
                each.shape(),
                x.shape()
            )));
        }
    }
    let apply = |mean: &Tensor, var: &Tensor| {
        // In the dtype of the statistics, which may be wider than the input's.
        let factor = (scale.to_dtype(var.dtype())? / (var + eps)?.sqrt()?)?;
        let shift = (bias.to_dtype(var.dtype())? - (mean * &factor)?)?;
        let y = ((x.to_dtype(var.dtype())? * channels(&factor, rank)?)? + channels(&shift, rank)?)?;
        y.to_dtype(x.dtype())
    };
    if !training {
        return one(apply(&mean, &var)?);
    }
    let over: Vec<isize> = (0..rank as isize).filter(|&axis| axis != 1).collect();
    let batch_mean = x.mean(&over)?;
    let batch_var = x.variance(&over, 0i64)?;
    let momentum = c.float("momentum", 0.9)?;
    let running = |old: &Tensor, new: &Tensor| (old * momentum)? + (new * (1.0 - momentum))?;
    let (running_mean, running_var) = (running(&mean, &batch_mean)?, running(&var, &batch_var)?);
    Ok(smallvec![
        apply(&batch_mean, &batch_var)?.into(),
        running_mean.into(),
        running_var.into(),
    ])
}

fn instance_norm(c: &Call<'_>) -> Results {
    one(c
        .x(0)?
        .instance_norm(Some(&c.x(1)?), Some(&c.x(2)?), c.float("epsilon", 1e-5)?)?)
}

/// The number of axes from the attribute's on, and their shape.
fn tail(c: &Call<'_>, shape: &Shape) -> Result<(usize, Shape)> {
    let axis = c.axis("axis", -1, shape.rank())?;
    Ok((shape.rank() - axis, Shape::new(&shape[axis..])?))
}

/// The dtype in which a normalization computes.
fn stash(c: &Call<'_>, x: &Tensor) -> Result<DType> {
    let stash = c.element_attribute("stash_type")?.unwrap_or(ElementType::F32).dtype()?;
    Ok(stash.promote(x.dtype()))
}

fn layer_norm(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let (count, tail) = tail(c, &shape)?;
    let eps = c.float("epsilon", 1e-5)?;
    let wide = stash(c, &x)?;
    let fits = |i: usize| c.opt(i)?.map(|w| w.to_dtype(wide)?.expand(tail)).transpose();
    let (scale, bias) = (fits(1)?, fits(2)?);
    let up = x.to_dtype(wide)?;
    let y = up
        .layer_norm(scale.as_ref(), bias.as_ref(), count, eps)?
        .to_dtype(x.dtype())?;
    let mut results = smallvec![y.into()];
    if c.wants(1) || c.wants(2) {
        let over: Vec<isize> = (shape.rank() - count..shape.rank()).map(|axis| axis as isize).collect();
        results.push(up.mean_keepdim(&over)?.into());
        results.push((up.variance_keepdim(&over, 0i64)? + eps)?.sqrt()?.reciprocal()?.into());
    }
    Ok(results)
}

fn rms_norm(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let (count, tail) = tail(c, &x.shape())?;
    let wide = stash(c, &x)?;
    let normal = x
        .to_dtype(wide)?
        .rms_norm(None, count, c.float("epsilon", 1e-5)?)?
        .to_dtype(x.dtype())?;
    one((normal * c.x(1)?.expand(tail)?)?)
}

fn group_norm(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let groups = c.count("num_groups", 1)?;
    let eps = c.float("epsilon", 1e-5)?;
    let (scale, bias) = (c.x(1)?, c.x(2)?);
    if c.version >= 21 {
        let wide = stash(c, &x)?;
        let (scale, bias) = (scale.to_dtype(wide)?, bias.to_dtype(wide)?);
        return one(x
            .to_dtype(wide)?
            .group_norm(groups, Some(&scale), Some(&bias), eps)?
            .to_dtype(x.dtype())?);
    }
    // Before version 21 there is a scale for each group, not for each channel.
    let channels = if shape.rank() >= 2 { shape[1] } else { 0 };
    if groups == 0 || channels % groups != 0 || scale.numel() != groups {
        return Err(Error::shape(format!(
            "{groups} groups, factors of shape {} and {shape}",
            scale.shape()
        )));
    }
    let each = |w: &Tensor| w.repeat_interleave(channels / groups, 0);
    one(x.group_norm(groups, Some(&each(&scale)?), Some(&each(&bias)?), eps)?)
}

fn lp_norm(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let axis = c.axis("axis", -1, x.rank())? as isize;
    let norm = match c.int("p", 2)? {
        1 => x.abs()?.sum_keepdim([axis])?,
        2 => norm(&x, &[axis], true)?,
        p => return Err(malformed(format!("p is {p}, not 1 or 2"))),
    };
    // Zeros stay zeros.
    let norm = norm.masked_fill(&norm.eq(0.0)?, 1.0)?;
    one((x / norm)?)
}

fn mean_variance(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let over = isizes(&axes(c.int_list("axes")?.unwrap_or(&[0, 2, 3]), x.rank())?);
    let centered = (&x - x.mean_keepdim(over.as_slice())?)?;
    let std = centered.square()?.mean_keepdim(over.as_slice())?.sqrt()?;
    one((centered / (std + 1e-9)?)?)
}

fn local_response(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let size = c.count("size", 1)?;
    let shape = x.shape();
    if size == 0 || size > 1 << 20 || shape.rank() < 2 {
        return Err(malformed(format!("a size of {size} for {shape}")));
    }
    let (alpha, beta, bias) = (c.float("alpha", 1e-4)?, c.float("beta", 0.75)?, c.float("bias", 1.0)?);
    let (before, after) = ((size - 1) / 2, size / 2);
    let mut borders = vec![(0, 0); shape.rank()];
    borders[1] = (before, after);
    c.reserve(&[shape.numel(), 1 + size / shape[1].max(1)], x.dtype())?;
    let squares = x.square()?.pad(&borders, 0.0)?;
    let mut sum = squares.narrow(1, 0, shape[1])?;
    for i in 1..size {
        sum = (sum + squares.narrow(1, i, shape[1])?)?;
    }
    one((x / ((sum * (alpha / size as f64))? + bias)?.pow(beta)?)?)
}

fn swiglu(c: &Call<'_>) -> Results {
    let (gate, up) = (c.x(0)?, c.x(1)?);
    if gate.shape() != up.shape() {
        return Err(Error::shape(format!(
            "{} and {} are not of one shape",
            gate.shape(),
            up.shape()
        )));
    }
    let alpha = c.float("alpha", 1.0)?;
    one(((&gate * (&gate * alpha)?.activation(Activation::Sigmoid)?)? * up)?)
}
