//! Recurrent networks. Source: the formulas in PyTorch's documentation of RNN, LSTMCell and GRUCell.

use super::wide::{is_narrow, narrow2, narrow3, widen};
use crate::{Activation, Backend, Result, Shape, SliceRange, UnaryOp};

/// See [`Backend::lstm_cell`].
pub(super) fn lstm_cell<B: Backend>(gates: &B::Tensor, cell: &B::Tensor) -> Result<(B::Tensor, B::Tensor)> {
    if is_narrow::<B>(gates) {
        return narrow2::<B>(B::lstm_cell(&widen::<B>(gates)?, &widen::<B>(cell)?)?, B::dtype(gates));
    }
    let [input, forget, update, output] = split::<B, 4>(gates)?;
    let kept = B::mul(&B::unary(UnaryOp::Sigmoid, &forget)?, cell)?;
    let added = B::mul(&B::unary(UnaryOp::Sigmoid, &input)?, &B::unary(UnaryOp::Tanh, &update)?)?;
    let cell = B::add(&kept, &added)?;
    let hidden = B::mul(&B::unary(UnaryOp::Sigmoid, &output)?, &B::unary(UnaryOp::Tanh, &cell)?)?;
    Ok((hidden, cell))
}

/// See [`Backend::gru_cell`].
pub(super) fn gru_cell<B: Backend>(
    input_gates: &B::Tensor,
    hidden_gates: &B::Tensor,
    hidden: &B::Tensor,
) -> Result<B::Tensor> {
    if is_narrow::<B>(hidden) {
        let wide = B::gru_cell(
            &widen::<B>(input_gates)?,
            &widen::<B>(hidden_gates)?,
            &widen::<B>(hidden)?,
        )?;
        return B::cast(&wide, B::dtype(hidden));
    }
    let [reset_x, update_x, new_x] = split::<B, 3>(input_gates)?;
    let [reset_h, update_h, new_h] = split::<B, 3>(hidden_gates)?;
    let reset = B::unary(UnaryOp::Sigmoid, &B::add(&reset_x, &reset_h)?)?;
    let update = B::unary(UnaryOp::Sigmoid, &B::add(&update_x, &update_h)?)?;
    let new = B::unary(UnaryOp::Tanh, &B::add(&new_x, &B::mul(&reset, &new_h)?)?)?;
    B::add(&new, &B::mul(&update, &B::sub(hidden, &new)?)?)
}

/// See [`Backend::rnn`].
pub(super) fn rnn<B: Backend>(
    x: &B::Tensor,
    hidden: &B::Tensor,
    weights: [&B::Tensor; 2],
    biases: Option<[&B::Tensor; 2]>,
    activation: Activation,
    reverse: bool,
) -> Result<(B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let ([input, own], wide) = (widen_pair::<B>(weights)?, biases.map(widen_pair::<B>).transpose()?);
        let biases = wide.as_ref().map(|[input, own]| [input, own]);
        let wide = B::rnn(
            &widen::<B>(x)?,
            &widen::<B>(hidden)?,
            [&input, &own],
            biases,
            activation,
            reverse,
        )?;
        return narrow2::<B>(wide, B::dtype(x));
    }
    let bias = biases.map(|[input, hidden]| B::add(input, hidden)).transpose()?;
    let gates = B::linear(x, weights[0], bias.as_ref(), None)?;
    let mut hidden = hidden.clone();
    let outputs = scan::<B>(&gates, reverse, |gates| {
        let sum = B::add(&B::linear(&hidden, weights[1], None, None)?, gates)?;
        hidden = B::activation(activation, &sum)?;
        Ok(hidden.clone())
    })?;
    Ok((outputs, hidden))
}

/// See [`Backend::lstm`].
pub(super) fn lstm<B: Backend>(
    x: &B::Tensor,
    hidden: &B::Tensor,
    cell: &B::Tensor,
    weights: [&B::Tensor; 2],
    biases: Option<[&B::Tensor; 2]>,
    reverse: bool,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let ([input, own], wide) = (widen_pair::<B>(weights)?, biases.map(widen_pair::<B>).transpose()?);
        let biases = wide.as_ref().map(|[input, own]| [input, own]);
        let (hidden, cell) = (widen::<B>(hidden)?, widen::<B>(cell)?);
        let wide = B::lstm(&widen::<B>(x)?, &hidden, &cell, [&input, &own], biases, reverse)?;
        return narrow3::<B>(wide, B::dtype(x));
    }
    let bias = biases.map(|[input, hidden]| B::add(input, hidden)).transpose()?;
    let gates = B::linear(x, weights[0], bias.as_ref(), None)?;
    let (mut hidden, mut cell) = (hidden.clone(), cell.clone());
    let outputs = scan::<B>(&gates, reverse, |gates| {
        let sum = B::add(&B::linear(&hidden, weights[1], None, None)?, gates)?;
        (hidden, cell) = B::lstm_cell(&sum, &cell)?;
        Ok(hidden.clone())
    })?;
    Ok((outputs, hidden, cell))
}

/// See [`Backend::gru`].
pub(super) fn gru<B: Backend>(
    x: &B::Tensor,
    hidden: &B::Tensor,
    weights: [&B::Tensor; 2],
    biases: Option<[&B::Tensor; 2]>,
    reset_after: bool,
    reverse: bool,
) -> Result<(B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let ([input, own], wide) = (widen_pair::<B>(weights)?, biases.map(widen_pair::<B>).transpose()?);
        let biases = wide.as_ref().map(|[input, own]| [input, own]);
        let (x32, hidden) = (widen::<B>(x)?, widen::<B>(hidden)?);
        let wide = B::gru(&x32, &hidden, [&input, &own], biases, reset_after, reverse)?;
        return narrow2::<B>(wide, B::dtype(x));
    }
    if !reset_after {
        return gru_reset_before::<B>(x, hidden, weights, biases, reverse);
    }
    let gates = B::linear(x, weights[0], biases.map(|both| both[0]), None)?;
    let mut hidden = hidden.clone();
    let outputs = scan::<B>(&gates, reverse, |gates| {
        let own = B::linear(&hidden, weights[1], biases.map(|both| both[1]), None)?;
        hidden = B::gru_cell(gates, &own, &hidden)?;
        Ok(hidden.clone())
    })?;
    Ok((outputs, hidden))
}

/// [`gru`] with the reset gate applied before the product. Both biases of a gate are then added to the same sum.
fn gru_reset_before<B: Backend>(
    x: &B::Tensor,
    hidden: &B::Tensor,
    weights: [&B::Tensor; 2],
    biases: Option<[&B::Tensor; 2]>,
    reverse: bool,
) -> Result<(B::Tensor, B::Tensor)> {
    let bias = biases.map(|[input, hidden]| B::add(input, hidden)).transpose()?;
    let gates = B::linear(x, weights[0], bias.as_ref(), None)?;
    let size = B::shape(hidden)[1];
    let rows = |start: usize, len: usize| {
        let ranges = [SliceRange::new(start, len, 1), SliceRange::full(size)];
        B::slice(weights[1], &ranges)
    };
    let (outer, inner) = (rows(0, 2 * size)?, rows(2 * size, size)?);
    let mut hidden = hidden.clone();
    let outputs = scan::<B>(&gates, reverse, |gates| {
        let [reset_x, update_x, new_x] = split::<B, 3>(gates)?;
        let [reset_h, update_h] = split::<B, 2>(&B::linear(&hidden, &outer, None, None)?)?;
        let reset = B::unary(UnaryOp::Sigmoid, &B::add(&reset_x, &reset_h)?)?;
        let update = B::unary(UnaryOp::Sigmoid, &B::add(&update_x, &update_h)?)?;
        let new_h = B::linear(&B::mul(&reset, &hidden)?, &inner, None, None)?;
        let new = B::unary(UnaryOp::Tanh, &B::add(&new_x, &new_h)?)?;
        hidden = B::add(&new, &B::mul(&update, &B::sub(&hidden, &new)?)?)?;
        Ok(hidden.clone())
    })?;
    Ok((outputs, hidden))
}

fn widen_pair<B: Backend>(pair: [&B::Tensor; 2]) -> Result<[B::Tensor; 2]> {
    Ok([widen::<B>(pair[0])?, widen::<B>(pair[1])?])
}

/// Runs `step` on each of the `gates [T, N, G]`, and returns its outputs `[N, H]` as `[T, N, H]`.
fn scan<B: Backend>(
    gates: &B::Tensor,
    reverse: bool,
    mut step: impl FnMut(&B::Tensor) -> Result<B::Tensor>,
) -> Result<B::Tensor> {
    let [steps, rows, width] = [0, 1, 2].map(|axis| B::shape(gates)[axis]);
    let mut outputs = Vec::with_capacity(steps);
    for i in 0..steps {
        let t = if reverse { steps - 1 - i } else { i };
        let ranges = [
            SliceRange::new(t, 1, 1),
            SliceRange::full(rows),
            SliceRange::full(width),
        ];
        let output = step(&B::reshape(&B::slice(gates, &ranges)?, Shape::from([rows, width]))?)?;
        let hidden = B::shape(&output)[1];
        outputs.push(B::reshape(&output, Shape::from([1, rows, hidden]))?);
    }
    if reverse {
        outputs.reverse();
    }
    B::concat(&outputs.iter().collect::<Vec<_>>(), 0)
}

/// Splits `[N, K H]` into K parts `[N, H]`.
pub(super) fn split<B: Backend, const K: usize>(x: &B::Tensor) -> Result<[B::Tensor; K]> {
    let shape = B::shape(x);
    let hidden = shape[1] / K;
    let mut parts = Vec::with_capacity(K);
    for part in 0..K {
        let ranges = [SliceRange::full(shape[0]), SliceRange::new(part * hidden, hidden, 1)];
        parts.push(B::slice(x, &ranges)?);
    }
    match parts.try_into() {
        Ok(parts) => Ok(parts),
        Err(_) => unreachable!("K parts were pushed"),
    }
}
