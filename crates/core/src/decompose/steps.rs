//! All steps of an LSTM, and their gradient. Source: the formulas in PyTorch's documentation of LSTMCell.

use super::recurrent::split as parts;
use super::wide::{is_narrow, narrow2, narrow3, widen};
use crate::{Backend, BinaryOp, Result, Scalar, Shape, SliceRange, UnaryOp};

/// See [`Backend::lstm_steps`].
pub(super) fn lstm_steps<B: Backend>(
    x: &B::Tensor,
    hidden: &B::Tensor,
    cell: &B::Tensor,
    weights: [&B::Tensor; 2],
    bias: Option<&B::Tensor>,
    reverse: bool,
) -> Result<(B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let (wide_x, hidden, cell) = (widen::<B>(x)?, widen::<B>(hidden)?, widen::<B>(cell)?);
        let (input, own) = (widen::<B>(weights[0])?, widen::<B>(weights[1])?);
        let bias = bias.map(widen::<B>).transpose()?;
        let wide = B::lstm_steps(&wide_x, &hidden, &cell, [&input, &own], bias.as_ref(), reverse)?;
        return narrow2::<B>(wide, B::dtype(x));
    }
    let gates = B::linear(x, weights[0], bias, None)?;
    let (mut hidden, mut cell) = (hidden.clone(), cell.clone());
    let (mut states, mut activations) = (Vec::new(), Vec::new());
    for t in order(B::shape(x)[0], reverse) {
        let sum = B::add(&B::linear(&hidden, weights[1], None, None)?, &row::<B>(&gates, t)?)?;
        let [input, forget, update, output] = parts::<B, 4>(&sum)?;
        let sigmoid = |x: &B::Tensor| B::unary(UnaryOp::Sigmoid, x);
        let (input, forget, output) = (sigmoid(&input)?, sigmoid(&forget)?, sigmoid(&output)?);
        let update = B::unary(UnaryOp::Tanh, &update)?;
        cell = B::add(&B::mul(&forget, &cell)?, &B::mul(&input, &update)?)?;
        hidden = B::mul(&output, &B::unary(UnaryOp::Tanh, &cell)?)?;
        states.push(B::concat(&[&hidden, &cell], 1)?);
        activations.push(B::concat(&[&input, &forget, &update, &output], 1)?);
    }
    Ok((stacked::<B>(states, reverse)?, stacked::<B>(activations, reverse)?))
}

/// See [`Backend::lstm_steps_backward`].
pub(super) fn lstm_steps_backward<B: Backend>(
    grad: &B::Tensor,
    cell: &B::Tensor,
    weight_hh: &B::Tensor,
    states: &B::Tensor,
    activations: &B::Tensor,
    reverse: bool,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    if is_narrow::<B>(grad) {
        let (grad_wide, cell, weight_hh) = (widen::<B>(grad)?, widen::<B>(cell)?, widen::<B>(weight_hh)?);
        let (states, activations) = (widen::<B>(states)?, widen::<B>(activations)?);
        let wide = B::lstm_steps_backward(&grad_wide, &cell, &weight_hh, &states, &activations, reverse)?;
        return narrow3::<B>(wide, B::dtype(grad));
    }
    // σ' = σ (1 − σ), tanh' = 1 − tanh².
    let sigmoid_slope = |y: &B::Tensor| B::mul(y, &B::scalar_sub(1.0, y)?);
    let tanh_slope = |y: &B::Tensor| B::scalar_sub(1.0, &B::mul(y, y)?);
    let zeros = B::full(B::shape(cell), Scalar::Float(0.0), B::dtype(cell), &B::device(cell))?;
    let (mut grad_hidden, mut grad_cell) = (zeros.clone(), zeros);
    let steps: Vec<usize> = order(B::shape(grad)[0], reverse).collect();
    let mut gates = Vec::with_capacity(steps.len());
    for (i, &t) in steps.iter().enumerate().rev() {
        let [state_hidden, state_cell] = parts::<B, 2>(&row::<B>(grad, t)?)?;
        let [input, forget, update, output] = parts::<B, 4>(&row::<B>(activations, t)?)?;
        let [_, now] = parts::<B, 2>(&row::<B>(states, t)?)?;
        let before = match i.checked_sub(1) {
            None => cell.clone(),
            Some(last) => {
                let [_, before] = parts::<B, 2>(&row::<B>(states, steps[last])?)?;
                before
            }
        };
        let squashed = B::unary(UnaryOp::Tanh, &now)?;
        let to_hidden = B::add(&state_hidden, &grad_hidden)?;
        let through = B::mul(&B::mul(&to_hidden, &output)?, &tanh_slope(&squashed)?)?;
        let to_cell = B::add(&B::add(&state_cell, &grad_cell)?, &through)?;
        let to_gates = B::concat(
            &[
                &B::mul(&B::mul(&to_cell, &update)?, &sigmoid_slope(&input)?)?,
                &B::mul(&B::mul(&to_cell, &before)?, &sigmoid_slope(&forget)?)?,
                &B::mul(&B::mul(&to_cell, &input)?, &tanh_slope(&update)?)?,
                &B::mul(&B::mul(&to_hidden, &squashed)?, &sigmoid_slope(&output)?)?,
            ],
            1,
        )?;
        grad_cell = B::binary(BinaryOp::Mul, &to_cell, &forget)?;
        grad_hidden = B::matmul(&to_gates, weight_hh)?;
        gates.push(to_gates);
    }
    // The gradients were computed from the last step to the first.
    Ok((stacked::<B>(gates, !reverse)?, grad_hidden, grad_cell))
}

/// Steps in the order in which they are taken.
fn order(steps: usize, reverse: bool) -> impl Iterator<Item = usize> {
    (0..steps).map(move |i| if reverse { steps - 1 - i } else { i })
}

/// Step `t` of `[T, N, W]`: `[N, W]`.
fn row<B: Backend>(x: &B::Tensor, t: usize) -> Result<B::Tensor> {
    let [rows, width] = [1, 2].map(|axis| B::shape(x)[axis]);
    let ranges = [
        SliceRange::new(t, 1, 1),
        SliceRange::full(rows),
        SliceRange::full(width),
    ];
    B::reshape(&B::slice(x, &ranges)?, Shape::from([rows, width]))
}

/// Stacks steps `[N, W]`, given in the order of computation, to `[T, N, W]`.
fn stacked<B: Backend>(mut steps: Vec<B::Tensor>, reverse: bool) -> Result<B::Tensor> {
    if reverse {
        steps.reverse();
    }
    let steps: Vec<B::Tensor> = steps
        .iter()
        .map(|step| {
            let [rows, width] = [0, 1].map(|axis| B::shape(step)[axis]);
            B::reshape(step, Shape::from([1, rows, width]))
        })
        .collect::<Result<_>>()?;
    B::concat(&steps.iter().collect::<Vec<_>>(), 0)
}
