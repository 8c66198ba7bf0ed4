//! Softmax and normalisations.

use polygrad_core::{Axes, Result, Scalar, Shape, decompose};

use super::create::full;
use crate::export::call::{Call, is_exact};
use crate::export::{Onnx, OnnxTensor};

type T = OnnxTensor;

pub(crate) fn softmax(op: &'static str, x: &T, axis: usize) -> Result<T> {
    x.like(Call::of(op, [x]).int("axis", axis as i64))
}

pub(crate) fn layer_norm(x: &T, weight: Option<&T>, bias: Option<&T>, axes: usize, eps: f64) -> Result<(T, T, T)> {
    if !is_exact(eps, x.dtype) {
        return decompose::layer_norm::<Onnx>(x, weight, bias, axes, eps);
    }
    let weight = weight_or_ones(x, weight, axes)?;
    let operands = [Some(x), Some(&weight), bias];
    let kept = x.shape.reduced(Axes::new(x.shape.rank() - axes..x.shape.rank())?, true);
    let call = Call::of("LayerNormalization", operands.into_iter().flatten())
        .int("axis", -(axes as i64))
        .float("epsilon", eps)
        .gives(x.shape, x.dtype)
        .gives(kept, x.dtype)
        .gives(kept, x.dtype);
    let all = x.recording.emit(call)?;
    Ok((all[0].clone(), all[1].clone(), all[2].clone()))
}

pub(crate) fn rms_norm(x: &T, weight: Option<&T>, axes: usize, eps: f64) -> Result<(T, T)> {
    let spelled_out = decompose::rms_norm::<Onnx>(x, weight, axes, eps)?;
    if !x.recording.state().opset.has_attention() || !is_exact(eps, x.dtype) {
        return Ok(spelled_out);
    }
    let weight = weight_or_ones(x, weight, axes)?;
    let call = Call::of("RMSNormalization", [x, &weight])
        .int("axis", -(axes as i64))
        .float("epsilon", eps);
    // The second result, which the op does not have, is computed by the nodes that the op replaces. They are removed as
    // dead if it is unused.
    Ok((x.like(call)?, spelled_out.1))
}

fn weight_or_ones(x: &T, weight: Option<&T>, axes: usize) -> Result<T> {
    match weight {
        Some(weight) => Ok(weight.clone()),
        None => {
            let inner = Shape::new(&x.shape[x.shape.rank() - axes..])?;
            full(inner, Scalar::Float(1.0), x.dtype, &x.recording)
        }
    }
}

pub(crate) fn batch_norm_running(
    x: &T,
    mean: &T,
    var: &T,
    weight: Option<&T>,
    bias: Option<&T>,
    eps: f64,
) -> Result<T> {
    if !is_exact(eps, x.dtype) {
        return decompose::batch_norm_running::<Onnx>(x, mean, var, weight, bias, eps);
    }
    let each = |value: f64| full(mean.shape, Scalar::Float(value), x.dtype, &x.recording);
    let or = |given: Option<&T>, value: f64| given.map_or_else(|| each(value), |given| Ok(given.clone()));
    let (weight, bias) = (or(weight, 1.0)?, or(bias, 0.0)?);
    x.like(Call::of("BatchNormalization", [x, &weight, &bias, mean, var]).float("epsilon", eps))
}
