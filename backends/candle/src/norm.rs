//! Layer normalisation, line by line.

use polygrad_core::{Result, Shape, decompose, room};

use crate::engine::filled;
use crate::values::{HostView, Real, Wide, floats};
use crate::{Candle, CandleTensor};

type Three = (CandleTensor, CandleTensor, CandleTensor);

/// Number of elements per line, if the loops here support the tensor.
fn line(x: &CandleTensor, axes: usize) -> Option<usize> {
    let shape = x.shape();
    let line: usize = shape[shape.rank() - axes..].iter().product();
    (x.device().is_cpu() && shape.numel() > 0).then_some(line)
}

/// The shape of a tensor with one element per line.
fn per_line(shape: Shape, axes: usize) -> Shape {
    let mut out = shape;
    let rank = out.rank();
    out.dims_mut()[rank - axes..].fill(1);
    out
}

/// A line's mean and `1 / sqrt(variance + eps)`.
fn moments<T: Real>(line: &[T], eps: f64) -> (f64, f64) {
    let count = line.len() as f64;
    let mean = crate::reduce::total(line) / count;
    let mut lanes = [0.0; 8];
    let chunks = line.chunks_exact(8);
    let square = |x: &T| (x.to_f64() - mean) * (x.to_f64() - mean);
    let rest: f64 = chunks.remainder().iter().map(square).sum();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += square(x));
    }
    let var = (lanes.iter().sum::<f64>() + rest) / count;
    (mean, 1.0 / (var + eps).sqrt())
}

pub(crate) fn layer_norm(
    x: &CandleTensor,
    weight: Option<&CandleTensor>,
    bias: Option<&CandleTensor>,
    axes: usize,
    eps: f64,
) -> Result<Three> {
    match line(x, axes) {
        None => decompose::layer_norm::<Candle>(x, weight, bias, axes, eps),
        Some(dim) => floats!("layer_norm", x.dtype(), T => forward::<T>(x, weight, bias, dim, axes, eps)),
    }
}

/// The elements of an optional parameter.
fn parameter<T: Real>(held: Option<&HostView<'_>>, absent: f64, dim: usize) -> Result<Vec<T::Wide>> {
    match held {
        None => filled(dim, <T::Wide>::of(absent)),
        Some(held) => Ok(held.values::<T>()?.iter().map(|x| x.widen()).collect()),
    }
}

fn forward<T: Real>(
    x: &CandleTensor,
    weight: Option<&CandleTensor>,
    bias: Option<&CandleTensor>,
    dim: usize,
    axes: usize,
    eps: f64,
) -> Result<Three> {
    let op = "layer_norm";
    let (shape, device) = (x.shape(), x.device());
    let held = x.held(op)?;
    let values = held.values::<T>()?;
    let held_weight = weight.map(|x| x.held(op)).transpose()?;
    let held_bias = bias.map(|x| x.held(op)).transpose()?;
    let scale = parameter::<T>(held_weight.as_ref(), 1.0, dim)?;
    let shift = parameter::<T>(held_bias.as_ref(), 0.0, dim)?;
    let count = shape.numel() / dim;
    let (mut out, mut means, mut rstds) = (room(shape.numel())?, room(count)?, room(count)?);
    for line in values.chunks_exact(dim) {
        let (mean, rstd) = moments(line, eps);
        means.push(T::from_f64(mean));
        rstds.push(T::from_f64(rstd));
        let (mean, rstd) = (<T::Wide>::of(mean), <T::Wide>::of(rstd));
        let affine = scale.iter().zip(&shift);
        out.extend(
            line.iter()
                .zip(affine)
                .map(|(x, (&scale, &shift))| T::narrow((x.widen() - mean) * rstd * scale + shift)),
        );
    }
    let lines = per_line(shape, axes);
    Ok((
        CandleTensor::of(shape, out, &device)?,
        CandleTensor::of(lines, means, &device)?,
        CandleTensor::of(lines, rstds, &device)?,
    ))
}

pub(crate) fn layer_norm_backward(
    grad: &CandleTensor,
    x: &CandleTensor,
    mean: &CandleTensor,
    rstd: &CandleTensor,
    weight: Option<&CandleTensor>,
    axes: usize,
) -> Result<Three> {
    match line(x, axes) {
        None => decompose::layer_norm_backward::<Candle>(grad, x, mean, rstd, weight, axes),
        Some(dim) => {
            floats!("layer_norm_backward", x.dtype(), T => backward::<T>([grad, x, mean, rstd], weight, dim, axes))
        }
    }
}

fn backward<T: Real>(
    given: [&CandleTensor; 4],
    weight: Option<&CandleTensor>,
    dim: usize,
    axes: usize,
) -> Result<Three> {
    let op = "layer_norm_backward";
    let [grad, x, mean, rstd] = given;
    let (shape, device) = (x.shape(), x.device());
    let (held_grad, held_x) = (grad.held(op)?, x.held(op)?);
    let (held_mean, held_rstd) = (mean.held(op)?, rstd.held(op)?);
    let held_weight = weight.map(|x| x.held(op)).transpose()?;
    let (grads, values) = (held_grad.values::<T>()?, held_x.values::<T>()?);
    let (means, rstds) = (held_mean.values::<T>()?, held_rstd.values::<T>()?);
    let scale = parameter::<T>(held_weight.as_ref(), 1.0, dim)?;
    let mut out = room(shape.numel())?;
    let (mut of_weight, mut of_bias) = (filled(dim, 0.0f64)?, filled(dim, 0.0f64)?);
    let zero = <T::Wide>::of(0.0);
    let (mut normal, mut scaled) = (filled(dim, zero)?, filled(dim, zero)?);
    let lines = grads.chunks_exact(dim).zip(values.chunks_exact(dim));
    for ((grad, line), (mean, rstd)) in lines.zip(means.iter().zip(rstds.iter())) {
        let (mean, rstd) = (mean.widen(), rstd.widen());
        let (mut sum, mut along) = (0.0, 0.0);
        for i in 0..dim {
            let (grad, x) = (grad[i].widen(), (line[i].widen() - mean) * rstd);
            (normal[i], scaled[i]) = (x, grad * scale[i]);
            of_weight[i] += (grad * x).to_f64();
            of_bias[i] += grad.to_f64();
            sum += scaled[i].to_f64();
            along += (scaled[i] * x).to_f64();
        }
        let (sum, along) = (<T::Wide>::of(sum / dim as f64), <T::Wide>::of(along / dim as f64));
        let pairs = scaled.iter().zip(&normal);
        out.extend(pairs.map(|(&scaled, &normal)| T::narrow((scaled - sum - normal * along) * rstd)));
    }
    let inner = Shape::new(&shape[shape.rank() - axes..])?;
    let narrow = |sums: Vec<f64>| sums.into_iter().map(T::from_f64).collect::<Vec<T>>();
    Ok((
        CandleTensor::of(shape, out, &device)?,
        CandleTensor::of(inner, narrow(of_weight), &device)?,
        CandleTensor::of(inner, narrow(of_bias), &device)?,
    ))
}
