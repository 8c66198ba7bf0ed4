//! Gradient rules of fused ops.

use polygrad_core::{Activation, Backend, ConvParams, CrossEntropyParams, PoolParams, Result, Shape, decompose};
use smallvec::smallvec;

use super::{Context, Passed};
use crate::tracked::Tracked;
use crate::{Tensor, flops};

/// Calls a fused gradient of the backend, or, if it must be differentiable, its decomposition on tracked tensors.
macro_rules! fused {
    ($c:ident, $op:ident($($tensor:expr),* ; $($arg:expr),*)) => {
        if $c.create_graph {
            decompose::$op::<Tracked<B>>($($tensor,)* $($arg),*)
        } else {
            B::$op($(&$tensor.value,)* $($arg),*).map(Tensor::from_inner)
        }
    };
}

#[inline(never)]
pub(super) fn activation<B: Backend>(op: Activation, c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(activation_backward(op, &c.saved[0], c)?)
}

/// The gradient wrt an activation function's input, from the saved tensor.
#[inline(never)]
pub(super) fn activation_backward<B: Backend>(
    op: Activation,
    saved: &Tensor<B>,
    c: &Context<'_, B>,
) -> Result<Tensor<B>> {
    if c.create_graph {
        return decompose::activation_backward::<Tracked<B>>(op, &c.grad, saved);
    }
    B::activation_backward(op, &c.grad.value, &saved.value).map(Tensor::from_inner)
}

#[inline(never)]
pub(super) fn conv<B: Backend>(params: &ConvParams, c: &Context<'_, B>) -> Result<Passed<B>> {
    let mut gradients = smallvec![
        c.when(0, || c.grad.conv_input_grad(&c.saved[1], c.shape(0), params))?,
        c.when(1, || c.grad.conv_weight_grad(&c.saved[0], c.shape(1), params))?,
    ];
    // A bias, if there is one, has a number for each channel.
    if let Some(bias) = c.call.inputs.get(2) {
        let mut channels = vec![1; c.grad.rank()];
        channels[1] = bias.shape[0];
        gradients.push(c.when(2, || c.grad.sum_to(Shape::new(&channels)?)?.reshape(bias.shape))?);
    }
    Ok(Passed::Inputs(gradients))
}

#[inline(never)]
pub(super) fn softmax<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(fused!(c, softmax_backward(&c.grad, &c.saved[0]; axis))?)
}

#[inline(never)]
pub(super) fn log_softmax<B: Backend>(axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(fused!(c, log_softmax_backward(&c.grad, &c.saved[0]; axis))?)
}

#[inline(never)]
pub(super) fn max_pool<B: Backend>(c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(fused!(c, max_pool_backward(&c.grad, &c.saved[0]; c.shape(0)))?)
}

#[inline(never)]
pub(super) fn avg_pool<B: Backend>(params: &PoolParams, c: &Context<'_, B>) -> Result<Passed<B>> {
    Passed::one(fused!(c, avg_pool_backward(&c.grad; c.shape(0), params))?)
}

#[inline(never)]
pub(super) fn embedding<B: Backend>(padding_idx: Option<usize>, c: &Context<'_, B>) -> Result<Passed<B>> {
    let rows = c.shape(0)[0];
    Passed::one(fused!(c, embedding_backward(&c.grad, &c.saved[0]; rows, padding_idx))?)
}

#[inline(never)]
pub(super) fn cross_entropy<B: Backend>(params: &CrossEntropyParams, c: &Context<'_, B>) -> Result<Passed<B>> {
    let [logsumexp, logits, target] = c.saved else {
        unreachable!("three tensors were saved");
    };
    if c.create_graph {
        let (loss, _) = decompose::cross_entropy::<Tracked<B>>(logits, target, params)?;
        return Ok(Passed::Through(loss, c.grad.clone()));
    }
    let grad = B::cross_entropy_backward(&c.grad.value, &logits.value, &target.value, &logsumexp.value, params)?;
    Passed::one(Tensor::from_inner(grad))
}

#[inline(never)]
pub(super) fn layer_norm<B: Backend>(axes: usize, eps: f64, c: &Context<'_, B>) -> Result<Passed<B>> {
    let [mean, rstd, x, affine @ ..] = c.saved else {
        unreachable!("at least three tensors were saved");
    };
    let weight = affine.first();
    if c.create_graph {
        let (y, _, _) = decompose::layer_norm::<Tracked<B>>(x, weight, affine.get(1), axes, eps)?;
        return Ok(Passed::Through(y, c.grad.clone()));
    }
    let gradients = B::layer_norm_backward(
        &c.grad.value,
        &x.value,
        &mean.value,
        &rstd.value,
        weight.map(|w| &w.value),
        axes,
    )?;
    Ok(three_gradients(gradients))
}

#[inline(never)]
pub(super) fn rms_norm<B: Backend>(axes: usize, eps: f64, c: &Context<'_, B>) -> Result<Passed<B>> {
    let [rstd, x, affine @ ..] = c.saved else {
        unreachable!("at least two tensors were saved");
    };
    let weight = affine.first();
    if c.create_graph {
        let (y, _) = decompose::rms_norm::<Tracked<B>>(x, weight, axes, eps)?;
        return Ok(Passed::Through(y, c.grad.clone()));
    }
    let (grad_x, grad_weight) =
        B::rms_norm_backward(&c.grad.value, &x.value, &rstd.value, weight.map(|w| &w.value), axes)?;
    Ok(Passed::Inputs(smallvec![
        Some(Tensor::from_inner(grad_x)),
        Some(Tensor::from_inner(grad_weight)),
    ]))
}

#[inline(never)]
pub(super) fn batch_norm<B: Backend>(eps: f64, c: &Context<'_, B>) -> Result<Passed<B>> {
    let [mean, var, x, affine @ ..] = c.saved else {
        unreachable!("at least three tensors were saved");
    };
    let weight = affine.first();
    if c.create_graph {
        let (y, _, _) = decompose::batch_norm::<Tracked<B>>(x, weight, affine.get(1), eps)?;
        return Ok(Passed::Through(y, c.grad.clone()));
    }
    let gradients = B::batch_norm_backward(
        &c.grad.value,
        &x.value,
        &mean.value,
        &var.value,
        weight.map(|w| &w.value),
        eps,
    )?;
    Ok(three_gradients(gradients))
}

#[inline(never)]
pub(super) fn attention<B: Backend>(scale: f64, causal: bool, c: &Context<'_, B>) -> Result<Passed<B>> {
    let [q, k, v, mask @ ..] = c.saved else {
        unreachable!("at least three tensors were saved");
    };
    let mask = mask.first();
    if c.create_graph {
        let y = decompose::attention::<Tracked<B>>(q, k, v, mask, scale, causal)?;
        return Ok(Passed::Through(y, c.grad.clone()));
    }
    let [grad, q, k, v] = [&c.grad, q, k, v].map(|x| &x.value);
    let gradients = B::attention_backward(grad, q, k, v, mask.map(|m| &m.value), scale, causal)?;
    let (keys, out) = (B::shape(k), B::shape(v));
    let (width, out) = (keys[keys.rank() - 1], out[out.rank() - 1]);
    // The recomputed scores, and the gradients of weights, values, queries and keys.
    flops::add_products(c.grad.numel() / out.max(1) * keys[keys.rank() - 2], 3 * width + 2 * out);
    Ok(three_gradients(gradients))
}

#[inline(never)]
pub(super) fn lstm_steps<B: Backend>(reverse: bool, c: &Context<'_, B>) -> Result<Passed<B>> {
    let [states, activations, x, hidden, cell, input, own, bias @ ..] = c.saved else {
        unreachable!("at least seven tensors were saved");
    };
    if c.create_graph {
        let (states, _) = decompose::lstm_steps::<Tracked<B>>(x, hidden, cell, [input, own], bias.first(), reverse)?;
        return Ok(Passed::Through(states, c.grad.clone()));
    }
    let [grad, cell, weight] = [&c.grad, cell, own].map(|x| &x.value);
    let (gates, grad_hidden, grad_cell) =
        B::lstm_steps_backward(grad, cell, weight, &states.value, &activations.value, reverse)?;
    let [steps, rows, width] = [0, 1, 2].map(|axis| B::shape(&gates)[axis]);
    flops::add_products(steps * rows * width / 4, width);
    let gates = Tensor::from_inner(gates).reshape([steps * rows, width])?;
    let turned = gates.matrix_transposed()?;
    let flat = |x: &Tensor<B>| x.reshape([steps * rows, x.shape()[2]]);
    // The hidden state before each step.
    let before = || {
        let after = Tensor::from_inner(states.value.clone()).narrow(2, 0, width / 4)?;
        let (first, others) = (hidden.unsqueeze(0)?, after.narrow(0, usize::from(reverse), steps - 1)?);
        let order = if reverse { [&others, &first] } else { [&first, &others] };
        Tensor::cat(&order, 0)
    };
    let mut gradients = smallvec![
        c.when(0, || gates.matmul(input)?.reshape(c.shape(0)))?,
        Some(Tensor::from_inner(grad_hidden)),
        Some(Tensor::from_inner(grad_cell)),
        c.when(3, || turned.matmul(&flat(x)?))?,
        c.when(4, || turned.matmul(&flat(&before()?)?))?,
    ];
    if c.call.inputs.len() == 6 {
        gradients.push(c.when(5, || gates.sum_to(Shape::from([width])))?);
    }
    Ok(Passed::Inputs(gradients))
}

/// The gradients of the first three inputs. The pass drops a gradient that has no input.
fn three_gradients<B: Backend>((first, second, third): (B::Tensor, B::Tensor, B::Tensor)) -> Passed<B> {
    Passed::Inputs(
        [first, second, third]
            .into_iter()
            .map(|g| Some(Tensor::from_inner(g)))
            .collect(),
    )
}
