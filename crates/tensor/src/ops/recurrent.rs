//! The element-wise parts of recurrent cells, and layers over whole sequences.

use polygrad_core::{Activation, Backend, DType, Error, Op, OpDesc, Result, decompose};
use smallvec::SmallVec;

use super::context;
use crate::autocast::autocast_dtype;
use crate::graph::{needs_graph, record_first};
use crate::tracked::Tracked;
use crate::{Tensor, flops};

impl<B: Backend> Tensor<B> {
    /// The element-wise part of an LSTM cell: from the gates (this tensor) `[N, 4H]`, before their
    /// activations, and `cell [N, H]` to the new hidden state and the new cell state, both `[N, H]`. With the
    /// gates in four parts i, f, g, o:
    ///
    /// `c' = σ(f) · c + σ(i) · tanh(g)`, `h' = σ(o) · tanh(c')`.
    ///
    /// Source: Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers et al. (2000),
    /// as PyTorch's LSTMCell.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn lstm_cell(&self, cell: &Self) -> Result<(Self, Self)> {
        let (gates, operands) = (self, [self, cell]);
        if let Some(dtype) = mixed(&operands) {
            return self.to_dtype(dtype)?.lstm_cell(&cell.to_dtype(dtype)?);
        }
        let fail = |e| context(e, "lstm_cell", &operands);
        check_cell([gates], 4, cell, "takes gates [N, 4H] and a cell state [N, H]").map_err(fail)?;
        if needs_graph(&operands) {
            return decompose::lstm_cell::<Tracked<B>>(gates, cell).map_err(fail);
        }
        let (hidden, cell) = B::lstm_cell(&gates.value, &cell.value).map_err(fail)?;
        Ok((Self::from_inner(hidden), Self::from_inner(cell)))
    }

    /// The element-wise part of a GRU cell: from the input's gates (this tensor) and the hidden state's gates, both
    /// `[N, 3H]` and before their activations, and `hidden [N, H]` to the new hidden state `[N, H]`. With the gates in
    /// three parts r, z, n:
    ///
    /// `r = σ(r_x + r_h)`, `z = σ(z_x + z_h)`, `n = tanh(n_x + r · n_h)`, `h' = (1 − z) · n + z · h`.
    ///
    /// Source: Cho et al., "Learning phrase representations using RNN encoder–decoder" (2014), in the form
    /// of PyTorch's GRUCell.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn gru_cell(&self, hidden_gates: &Self, hidden: &Self) -> Result<Self> {
        let (input_gates, operands) = (self, [self, hidden_gates, hidden]);
        if let Some(dtype) = mixed(&operands) {
            let [gates, hidden_gates, hidden] = operands.map(|x| x.to_dtype(dtype));
            return gates?.gru_cell(&hidden_gates?, &hidden?);
        }
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

    /// A layer of an RNN in one direction, as one op: from this input `[T, N, C]` and `hidden [N, H]`, with
    /// `weight_ih [H, C]` and `weight_hh [H, H]`, and `bias_ih` and `bias_hh` `[H]`, to the outputs `[T, N, H]` and the
    /// last state. `None` if a gradient is needed, or the backend does not have the op; the caller then computes step
    /// by step.
    ///
    /// # Errors
    /// When there is no step, or shapes, dtypes or devices do not fit.
    pub fn rnn_sequence(
        &self,
        hidden: &Self,
        weights: [&Self; 2],
        biases: Option<[&Self; 2]>,
        activation: Activation,
        reverse: bool,
    ) -> Result<Option<(Self, Self)>> {
        let op = Op::Rnn { activation, reverse };
        self.sequence(&op, 1, &[hidden], weights, biases, |weights, biases| {
            let (outputs, hidden) = B::rnn(&self.value, &hidden.value, weights, biases, activation, reverse)?;
            Ok((Self::from_inner(outputs), Self::from_inner(hidden)))
        })
    }

    /// [`Tensor::rnn_sequence`] for an LSTM, whose gates [`Tensor::lstm_cell`] lists: weights have `4H` rows. Gives the
    /// outputs, the last hidden state and the last cell state. If a gradient is needed, it is `None` only if the
    /// backend cannot compute that.
    ///
    /// # Errors
    /// As [`Tensor::rnn_sequence`].
    pub fn lstm_sequence(
        &self,
        (hidden, cell): (&Self, &Self),
        weights: [&Self; 2],
        biases: Option<[&Self; 2]>,
        reverse: bool,
    ) -> Result<Option<(Self, Self, Self)>> {
        if let Some(states) = self.lstm_states((hidden, cell), weights, biases, reverse)? {
            let (width, steps) = (hidden.shape()[1], self.shape()[0]);
            let last = states.select(0, if reverse { 0 } else { steps as isize - 1 })?;
            return Ok(Some((
                states.narrow(2, 0, width)?,
                last.narrow(1, 0, width)?,
                last.narrow(1, width, width)?,
            )));
        }
        let op = Op::Lstm { reverse };
        self.sequence(&op, 4, &[hidden, cell], weights, biases, |weights, biases| {
            let (outputs, hidden, cell) = B::lstm(&self.value, &hidden.value, &cell.value, weights, biases, reverse)?;
            Ok((
                Self::from_inner(outputs),
                Self::from_inner(hidden),
                Self::from_inner(cell),
            ))
        })
    }

    /// [`Tensor::rnn_sequence`] for a GRU, whose gates [`Tensor::gru_cell`] lists: weights have `3H` rows. With
    /// `reset_after`, as in PyTorch, the reset gate scales the product for the new gate; without, it scales the state
    /// before that product.
    ///
    /// # Errors
    /// As [`Tensor::rnn_sequence`].
    pub fn gru_sequence(
        &self,
        hidden: &Self,
        weights: [&Self; 2],
        biases: Option<[&Self; 2]>,
        reset_after: bool,
        reverse: bool,
    ) -> Result<Option<(Self, Self)>> {
        self.sequence(
            &Op::Gru { reset_after, reverse },
            3,
            &[hidden],
            weights,
            biases,
            |weights, biases| {
                let (outputs, hidden) = B::gru(&self.value, &hidden.value, weights, biases, reset_after, reverse)?;
                Ok((Self::from_inner(outputs), Self::from_inner(hidden)))
            },
        )
    }

    /// The states of all steps of an LSTM `[T, N, 2H]`, hidden before cell, in the gradient graph. `None` if no
    /// gradient is needed, or the backend cannot compute them.
    fn lstm_states(
        &self,
        (hidden, cell): (&Self, &Self),
        weights: [&Self; 2],
        biases: Option<[&Self; 2]>,
        reverse: bool,
    ) -> Result<Option<Self>> {
        let op = Op::LstmSteps { reverse };
        let operands = [self, hidden, cell, weights[0], weights[1]];
        let wanted = needs_graph(&operands) || biases.is_some_and(|biases| needs_graph(&biases));
        if !wanted || !self.computes(&op) {
            return Ok(None);
        }
        let mut operands = operands.to_vec();
        operands.extend(biases.into_iter().flatten());
        let fail = |e| context(e, "lstm", &operands);
        check_sequence(&operands, 4, 2).map_err(fail)?;
        let bias = biases.map(|[input, own]| input.add(own)).transpose()?;
        let mut inputs = vec![self, hidden, cell, weights[0], weights[1]];
        inputs.extend(&bias);
        let bias = bias.as_ref().map(|bias| &bias.value);
        let (x, hidden, cell) = (&self.value, &hidden.value, &cell.value);
        let (states, activations) = B::lstm_steps(x, hidden, cell, values(weights), bias, reverse).map_err(fail)?;
        count_steps(&operands, 4);
        let states = record_first(states, &[&activations], &inputs, || op);
        Ok(Some(states))
    }

    /// Whether the backend computes an op on this tensor.
    fn computes(&self, op: &Op) -> bool {
        let dtype = self.dtype();
        B::supports(&B::device(&self.value), &OpDesc { op, dtype }).is_ok()
    }

    fn sequence<R>(
        &self,
        op: &Op,
        gates: usize,
        states: &[&Self],
        weights: [&Self; 2],
        biases: Option<[&Self; 2]>,
        run: impl FnOnce([&B::Tensor; 2], Option<[&B::Tensor; 2]>) -> Result<R>,
    ) -> Result<Option<R>> {
        let params = weights.into_iter().chain(biases.into_iter().flatten());
        let states_and_params = states.iter().copied().chain(params);
        let operands: SmallVec<[&Self; 7]> = [self].into_iter().chain(states_and_params).collect();
        if needs_graph(&operands) || !self.computes(op) {
            return Ok(None);
        }
        let fail = |e| context(e, op.name(), &operands);
        check_sequence(&operands, gates, states.len()).map_err(fail)?;
        let computed = run(values(weights), biases.map(values)).map_err(fail)?;
        count_steps(&operands, gates);
        Ok(Some(computed))
    }
}

fn values<B: Backend>(pair: [&Tensor<B>; 2]) -> [&B::Tensor; 2] {
    pair.map(|x| &x.value)
}

/// Counts the products of input and states with their weights.
fn count_steps<B: Backend>(operands: &[&Tensor<B>], gates: usize) {
    let (input, hidden) = (operands[0].shape(), operands[1].shape()[1]);
    flops::add_products(input[0] * input[1] * gates * hidden, input[2] + hidden);
}

/// Checks that an input `[T, N, C]`, states `[N, H]`, two weights and two optional biases fit each other.
fn check_sequence<B: Backend>(operands: &[&Tensor<B>], gates: usize, states: usize) -> Result<()> {
    let form = || {
        Error::shape(
            "takes an input [T, N, C] with T ≥ 1, states [N, H], weights [G · H, C] and [G · H, H], and biases [G · H]",
        )
    };
    let (&[steps, rows, width], &[_, hidden]) = (operands[0].shape().dims(), operands[1].shape().dims()) else {
        return Err(form());
    };
    let gates = hidden.checked_mul(gates).ok_or_else(form)?;
    let (states, params) = operands[1..].split_at(states);
    let wanted = [&[gates, width][..], &[gates, hidden], &[gates], &[gates]];
    let fits = states.iter().all(|state| state.shape().dims() == [rows, hidden])
        && params
            .iter()
            .zip(wanted)
            .all(|(param, wanted)| param.shape().dims() == wanted);
    if steps == 0 || !fits {
        return Err(form());
    }
    for operand in operands {
        operands[0].check_device(operand)?;
        if !operands[0].dtype().is_float() || operand.dtype() != operands[0].dtype() {
            return Err(Error::dtype("input, states and weights must have one float dtype")
                .with_hint("convert them with to_dtype"));
        }
    }
    Ok(())
}

/// The dtype to which operands of different float dtypes promote. `None` outside autocast, which causes such a mix, or
/// if the dtypes are the same.
fn mixed<B: Backend>(operands: &[&Tensor<B>]) -> Option<DType> {
    let first = operands[0].dtype();
    let differ = operands.iter().any(|x| x.dtype() != first);
    if !differ || autocast_dtype().is_none() || !operands.iter().all(|x| x.dtype().is_float()) {
        return None;
    }
    operands.iter().map(|x| x.dtype()).reduce(DType::promote)
}

/// Checks that all gates are `[N, parts · H]` for a state `[N, H]`.
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
