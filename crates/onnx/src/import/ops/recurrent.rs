//! RNN, GRU and LSTM, in all their forms.

use polygrad_core::{Error, Result};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::activation::Function;
use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, Results};

rows! {
    Row::new("RNN", 7, |c| recurrent(c, &Cell::new(1, &["Tanh"], rnn_step)));
    Row::new("GRU", 7, |c| recurrent(c, &Cell::new(3, &["Sigmoid", "Tanh"], gru_step)));
    Row::new("LSTM", 7, |c| lstm(c, as_it_is));
}

/// The activation functions that ONNX gives to recurrent ops.
const FUNCTIONS: [&str; 11] = [
    "affine",
    "elu",
    "hardsigmoid",
    "leakyrelu",
    "relu",
    "scaledtanh",
    "sigmoid",
    "softplus",
    "softsign",
    "tanh",
    "thresholdedrelu",
];

/// Computes the next state from the input's part of the gates and the state.
type Step = fn(&Direction, &Tensor, &State) -> Result<State>;

/// A kind of cell.
struct Cell {
    gates: usize,
    /// The default activation functions.
    functions: &'static [&'static str],
    step: Step,
    /// A function applied to inputs and states before each product with weights.
    before: Before,
}

impl Cell {
    fn new(gates: usize, functions: &'static [&'static str], step: Step) -> Self {
        Self {
            gates,
            functions,
            step,
            before: as_it_is,
        }
    }
}

type Before = fn(&Tensor) -> Result<Tensor>;

fn as_it_is(x: &Tensor) -> Result<Tensor> {
    Ok(x.clone())
}

/// An LSTM with a function applied to inputs and states before each product with weights.
pub(super) fn lstm(c: &Call<'_>, before: Before) -> Results {
    let cell = Cell::new(4, &["Sigmoid", "Tanh", "Tanh"], lstm_step);
    recurrent(c, &Cell { before, ..cell })
}

/// The hidden state `[N, H]`, and an LSTM's cell state.
struct State {
    hidden: Tensor,
    cell: Option<Tensor>,
}

/// The weights of one direction and how they are used.
struct Direction {
    /// `[G·H, H]`.
    r: Tensor,
    /// `[G·H]`: the recurrent part of the bias, if it is used separately from the input's.
    recurrent_bias: Option<Tensor>,
    /// `[3·H]`: input, output, forget.
    peepholes: Option<Tensor>,
    functions: Vec<Function>,
    clip: Option<f64>,
    size: usize,
    input_forget: bool,
    linear_before_reset: bool,
    before: Before,
}

impl Direction {
    fn clipped(&self, x: Tensor) -> Result<Tensor> {
        match self.clip {
            Some(clip) => x.clamp(Some(-clip), Some(clip)),
            None => Ok(x),
        }
    }

    fn function(&self, i: usize, x: Tensor) -> Result<Tensor> {
        self.functions[i].apply(&self.clipped(x)?)
    }

    /// Gate `i` of a tensor with the gates side by side along the last axis.
    fn gate(&self, x: &Tensor, i: usize) -> Result<Tensor> {
        x.narrow(-1, i * self.size, self.size)
    }

    fn peephole(&self, i: usize, cell: &Tensor) -> Result<Option<Tensor>> {
        self.peepholes.as_ref().map(|p| self.gate(p, i)? * cell).transpose()
    }
}

/// `x` is the input's part of the gates, biases included.
fn rnn_step(d: &Direction, x: &Tensor, state: &State) -> Result<State> {
    let hidden = d.function(0, (x + state.hidden.linear(&d.r, None)?)?)?;
    Ok(State { hidden, cell: None })
}

fn gru_step(d: &Direction, x: &Tensor, state: &State) -> Result<State> {
    let hidden = &state.hidden;
    let bias = |start: usize, len: usize| {
        d.recurrent_bias
            .as_ref()
            .map(|b| b.narrow(0, start * d.size, len * d.size))
            .transpose()
    };
    let rows = |start: usize, len: usize| d.r.narrow(0, start * d.size, len * d.size);
    let outer = hidden.linear(&rows(0, 2)?, bias(0, 2)?.as_ref())?;
    let update = d.function(0, (d.gate(x, 0)? + d.gate(&outer, 0)?)?)?;
    let reset = d.function(0, (d.gate(x, 1)? + d.gate(&outer, 1)?)?)?;
    let (weight, bias) = (rows(2, 1)?, bias(2, 1)?);
    let inner = if d.linear_before_reset {
        (&reset * hidden.linear(&weight, bias.as_ref())?)?
    } else {
        (&reset * hidden)?.linear(&weight, bias.as_ref())?
    };
    let new = d.function(1, (d.gate(x, 2)? + inner)?)?;
    let hidden = ((&new * (1.0 - &update)?)? + (&update * hidden)?)?;
    Ok(State { hidden, cell: None })
}

fn lstm_step(d: &Direction, x: &Tensor, state: &State) -> Result<State> {
    let cell = state
        .cell
        .as_ref()
        .ok_or_else(|| malformed("an LSTM without a cell state"))?;
    let gates = (x + (d.before)(&state.hidden)?.linear(&d.r, None)?)?;
    let with = |i: usize, peephole: Option<Tensor>| -> Result<Tensor> {
        let gate = d.gate(&gates, i)?;
        match peephole {
            Some(peephole) => gate + peephole,
            None => Ok(gate),
        }
    };
    // In ONNX's order: input, output, forget, cell; the peepholes: input, output, forget.
    let input = d.function(0, with(0, d.peephole(0, cell)?)?)?;
    let forget = if d.input_forget {
        (1.0 - &input)?
    } else {
        d.function(0, with(2, d.peephole(2, cell)?)?)?
    };
    let new = d.function(1, with(3, None)?)?;
    let cell = ((forget * cell)? + (input * new)?)?;
    let output = d.function(0, with(1, d.peephole(1, &cell)?)?)?;
    let hidden = (output * d.functions[2].apply(&cell)?)?;
    Ok(State {
        hidden,
        cell: Some(cell),
    })
}

/// The functions of all directions, from the attributes or the defaults.
fn functions(c: &Call<'_>, defaults: &[&str], directions: usize) -> Result<Vec<Vec<Function>>> {
    let count = defaults.len();
    let names: Vec<&str> = match c.texts("activations")? {
        // ONNX's default for RNN is two names, and ONNX Runtime's optimizer writes both whatever the direction.
        Some(names) if names.len() == count * directions || names.len() == 2 && count == 1 => {
            names.iter().map(String::as_str).take(count * directions).collect()
        }
        Some(names) => {
            return Err(malformed(format!(
                "{} activation functions, not {}",
                names.len(),
                count * directions
            )));
        }
        None => defaults.iter().copied().cycle().take(count * directions).collect(),
    };
    // Only functions with parameters consume numbers of the lists.
    let mut alphas = c
        .float_list("activation_alpha")?
        .unwrap_or(&[])
        .iter()
        .map(|&v| f64::from(v));
    let mut betas = c
        .float_list("activation_beta")?
        .unwrap_or(&[])
        .iter()
        .map(|&v| f64::from(v));
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        if !FUNCTIONS.contains(&name.to_lowercase().as_str()) {
            return Err(malformed(format!(
                "there is no activation function {name:?} of a recurrent op"
            )));
        }
        let plain = Function::new(name, None, None)?;
        let alpha = if plain.takes_alpha() { alphas.next() } else { None };
        let beta = if plain.takes_beta() { betas.next() } else { None };
        all.push(Function::new(name, alpha, beta)?);
    }
    Ok(all.chunks(count).map(<[Function]>::to_vec).collect())
}

fn recurrent(c: &Call<'_>, cell: &Cell) -> Results {
    let is_lstm = cell.gates == 4;
    let batch_first = c.version >= 14 && c.flag("layout", false)?;
    let turn = |x: Tensor| if batch_first { x.transpose(0, 1) } else { Ok(x) };
    let x = turn(c.x(0)?)?;
    let (w, r, b) = (c.x(1)?, c.x(2)?, c.opt(3)?);
    if x.rank() != 3 || w.rank() != 3 || r.rank() != 3 {
        return Err(Error::shape("input and weights are not all of rank 3"));
    }
    let [steps, batch] = [x.shape()[0], x.shape()[1]];
    let size = r.shape()[2];
    let reversed: &[bool] = match c.text("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(malformed(format!("there is no direction {other:?}"))),
    };
    let directions = reversed.len();
    if let Some(wrong) = c.opt_int("hidden_size")?.filter(|&wanted| wanted != size as i64) {
        return Err(malformed(format!(
            "hidden_size is {wrong}, and the weights are for {size}"
        )));
    }
    let rows = cell.gates.saturating_mul(size);
    if w.shape()[..2] != [directions, rows] || r.shape()[..2] != [directions, rows] {
        return Err(Error::shape(format!(
            "weights of shape {} and {} for {directions} directions, an input of shape {}",
            w.shape(),
            r.shape(),
            x.shape()
        )));
    }
    c.reserve(&[steps, batch.max(1), rows.max(1), directions], x.dtype())?;
    let functions = functions(c, cell.functions, directions)?;
    let lengths = c
        .opt_ints(4)?
        .filter(|lengths| lengths.iter().any(|&length| length != steps as i64));
    let initial = |i: usize| -> Result<Tensor> {
        match c.opt(i)? {
            Some(state) => turn(state),
            None => c.full(&[directions, batch, size], 0.0, x.dtype()),
        }
    };
    let (first_hidden, first_cell) = (initial(5)?, if is_lstm { Some(initial(6)?) } else { None });
    let (mut outputs, mut hiddens, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (i, &reversed) in reversed.iter().enumerate() {
        let at = i as isize;
        let bias = b.as_ref().map(|b| b.select(0, at)).transpose()?;
        let half = |start: usize| bias.as_ref().map(|b| b.narrow(0, start, rows)).transpose();
        let (input_bias, recurrent_bias) = (half(0)?, half(rows)?);
        // Only a GRU needs the two parts of the bias separately.
        let apart = cell.gates == 3;
        let bias = match (&input_bias, &recurrent_bias) {
            (Some(a), Some(b)) if !apart => Some((a + b)?),
            _ => input_bias,
        };
        let direction = Direction {
            r: r.select(0, at)?,
            recurrent_bias: recurrent_bias.filter(|_| apart),
            peepholes: if is_lstm {
                c.opt(7)?.map(|p| p.select(0, at)).transpose()?
            } else {
                None
            },
            functions: functions[i].clone(),
            clip: c.opt_float("clip")?.filter(|&clip| clip > 0.0),
            size,
            input_forget: is_lstm && c.flag("input_forget", false)?,
            linear_before_reset: c.flag("linear_before_reset", false)?,
            before: cell.before,
        };
        let gates = (cell.before)(&x)?.linear(&w.select(0, at)?, bias.as_ref())?;
        let mut state = State {
            hidden: first_hidden.select(0, at)?,
            cell: first_cell.as_ref().map(|cell| cell.select(0, at)).transpose()?,
        };
        let mut made: Vec<Tensor> = Vec::with_capacity(steps);
        for step in 0..steps {
            c.limits.step()?;
            let t = if reversed { steps - 1 - step } else { step };
            let next = (cell.step)(&direction, &gates.select(0, t as isize)?, &state)?;
            let (next, output) = match &lengths {
                None => (
                    State {
                        hidden: next.hidden.clone(),
                        cell: next.cell,
                    },
                    next.hidden,
                ),
                Some(lengths) => within(c, lengths, t, batch, &state, next)?,
            };
            state = next;
            made.push(output);
        }
        if reversed {
            made.reverse();
        }
        outputs.push(if made.is_empty() {
            c.full(&[0, batch, size], 0.0, x.dtype())?
        } else {
            Tensor::stack(&made.iter().collect::<Vec<_>>(), 0)?
        });
        hiddens.push(state.hidden);
        cells.extend(state.cell);
    }
    let stack = |parts: &[Tensor], axis: isize| Tensor::stack(&parts.iter().collect::<Vec<_>>(), axis);
    // [steps, directions, batch, size], or batch first.
    let y = stack(&outputs, 1)?;
    let y = if batch_first { y.permute([2, 0, 1, 3])? } else { y };
    let mut results = smallvec![y.into(), turn(stack(&hiddens, 0)?)?.into()];
    if is_lstm {
        results.push(turn(stack(&cells, 0)?)?.into());
    }
    Ok(results)
}

/// The next state and the output, for sequences that have not ended yet; the others keep their state and output zeros.
fn within(c: &Call<'_>, lengths: &[i64], t: usize, batch: usize, old: &State, next: State) -> Result<(State, Tensor)> {
    if lengths.len() != batch {
        return Err(Error::shape(format!("{} lengths for {batch} sequences", lengths.len())));
    }
    let alive: Vec<bool> = lengths.iter().map(|&length| (t as i64) < length).collect();
    let alive = c.make(alive, &[batch, 1])?;
    let output = Tensor::where_(&alive, &next.hidden, &next.hidden.zeros_like()?)?;
    let hidden = Tensor::where_(&alive, &next.hidden, &old.hidden)?;
    let cell = match (next.cell, &old.cell) {
        (Some(new), Some(old)) => Some(Tensor::where_(&alive, &new, old)?),
        _ => None,
    };
    Ok((State { hidden, cell }, output))
}
