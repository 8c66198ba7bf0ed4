//! Cells of recurrent networks. Source: the formulas in PyTorch's documentation of LSTMCell and GRUCell.

use super::wide::{is_narrow, narrow2, widen};
use crate::{Backend, Result, SliceRange, UnaryOp};

/// See [`Backend::lstm_cell`].
pub fn lstm_cell<B: Backend>(gates: &B::Tensor, cell: &B::Tensor) -> Result<(B::Tensor, B::Tensor)> {
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
pub fn gru_cell<B: Backend>(
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

/// `[N, K H]` into K parts `[N, H]`.
fn split<B: Backend, const K: usize>(x: &B::Tensor) -> Result<[B::Tensor; K]> {
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
