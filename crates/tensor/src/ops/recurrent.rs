//! The element-wise parts of recurrent cells.

use polygrad_core::{Backend, Error, Result, decompose};

use super::context;
use crate::Tensor;
use crate::graph::needs_graph;
use crate::tracked::Tracked;

impl<B: Backend> Tensor<B> {
    /// The element-wise part of an LSTM cell: from the gates (this tensor) `[N, 4H]`, before their activations, and `cell [N, H]` to the new
    /// hidden state and the new cell state, both `[N, H]`. With the gates in four parts i, f, g, o:
    ///
    /// `c' = σ(f) · c + σ(i) · tanh(g)`, `h' = σ(o) · tanh(c')`.
    ///
    /// Source: Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers et al. (2000), as PyTorch's LSTMCell.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn lstm_cell(&self, cell: &Self) -> Result<(Self, Self)> {
        let (gates, operands) = (self, [self, cell]);
        let fail = |e| context(e, "lstm_cell", &operands);
        check_cell([gates], 4, cell, "takes gates [N, 4H] and a cell state [N, H]").map_err(fail)?;
        if needs_graph(&operands) {
            return decompose::lstm_cell::<Tracked<B>>(gates, cell).map_err(fail);
        }
        let (hidden, cell) = B::lstm_cell(&gates.value, &cell.value).map_err(fail)?;
        Ok((Self::from_inner(hidden), Self::from_inner(cell)))
    }

    /// The element-wise part of a GRU cell: from the input's gates (this tensor) and the hidden state's gates, both `[N, 3H]` and before their
    /// activations, and `hidden [N, H]` to the new hidden state `[N, H]`. With the gates in three parts r, z, n:
    ///
    /// `r = σ(r_x + r_h)`, `z = σ(z_x + z_h)`, `n = tanh(n_x + r · n_h)`, `h' = (1 − z) · n + z · h`.
    ///
    /// Source: Cho et al., "Learning phrase representations using RNN encoder–decoder" (2014), in the form of PyTorch's GRUCell.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn gru_cell(&self, hidden_gates: &Self, hidden: &Self) -> Result<Self> {
        let (input_gates, operands) = (self, [self, hidden_gates, hidden]);
        let fail = |e| context(e, "gru_cell", &operands);
        let form = "takes the gates of the input and of the hidden state, both [N, 3H], and a hidden state [N, H]";
        check_cell([input_gates, hidden_gates], 3, hidden, form).map_err(fail)?;
        if needs_graph(&operands) {
            return decompose::gru_cell::<Tracked<B>>(input_gates, hidden_gates, hidden).map_err(fail);
        }
        B::gru_cell(&input_gates.value, &hidden_gates.value, &hidden.value)
            .map(Self::from_inner)
            .map_err(fail)
    }
}

/// That all gates are `[N, parts · H]` for a state `[N, H]`.
fn check_cell<B: Backend, const K: usize>(
    gates: [&Tensor<B>; K],
    parts: usize,
    state: &Tensor<B>,
    form: &'static str,
) -> Result<()> {
    let shape = state.shape();
    let &[rows, hidden] = shape.dims() else {
        return Err(Error::shape(form));
    };
    let wanted = hidden.checked_mul(parts).map(|width| [rows, width]);
    for operand in gates {
        state.check_device(operand)?;
        if Some(operand.shape().dims()) != wanted.as_ref().map(|wanted| &wanted[..]) {
            return Err(Error::shape(form));
        }
        if !state.dtype().is_float() || operand.dtype() != state.dtype() {
            return Err(
                Error::dtype("gates and state must have one float dtype").with_hint("convert them with to_dtype")
            );
        }
    }
    Ok(())
}
