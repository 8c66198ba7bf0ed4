//! Recurrent layers over whole sequences.

use polygrad_core::{Activation, Axes, Backend, HostTensor, Result, Shape, SliceRange};

use crate::export::call::Call;
use crate::export::{Onnx, OnnxTensor};

type T = OnnxTensor;

/// A kind of layer: ONNX's name, and its gates in ONNX's order, as indices into PyTorch's order.
struct Kind {
    op: &'static str,
    gates: &'static [usize],
    /// Appended to the names of parameters whose rows are in ONNX's order.
    suffix: &'static str,
}

const RNN: Kind = Kind {
    op: "RNN",
    gates: &[0],
    suffix: "onnx",
};
const LSTM: Kind = Kind {
    op: "LSTM",
    gates: &[0, 3, 1, 2],
    suffix: "iofc",
};
const GRU: Kind = Kind {
    op: "GRU",
    gates: &[1, 0, 2],
    suffix: "zrh",
};

pub(crate) fn rnn(
    x: &T,
    hidden: &T,
    weights: [&T; 2],
    biases: Option<[&T; 2]>,
    activation: Activation,
    reverse: bool,
) -> Result<(T, T)> {
    let function = match activation {
        Activation::Relu => "Relu",
        _ => "Tanh",
    };
    let activations = crate::graph::Attribute::Strings(vec![function.to_owned()]);
    let all = layer(&RNN, x, &[hidden], weights, biases, reverse, |call| {
        call.attribute("activations", activations)
    })?;
    Ok((all[0].clone(), all[1].clone()))
}

pub(crate) fn lstm(
    x: &T,
    states: [&T; 2],
    weights: [&T; 2],
    biases: Option<[&T; 2]>,
    reverse: bool,
) -> Result<(T, T, T)> {
    let all = layer(&LSTM, x, &states, weights, biases, reverse, |call| call)?;
    Ok((all[0].clone(), all[1].clone(), all[2].clone()))
}

pub(crate) fn gru(
    x: &T,
    hidden: &T,
    weights: [&T; 2],
    biases: Option<[&T; 2]>,
    reset_after: bool,
    reverse: bool,
) -> Result<(T, T)> {
    let all = layer(&GRU, x, &[hidden], weights, biases, reverse, |call| {
        call.int("linear_before_reset", i64::from(reset_after))
    })?;
    Ok((all[0].clone(), all[1].clone()))
}

/// The outputs `[T, N, H]` and the last states `[N, H]`.
fn layer(
    kind: &Kind,
    x: &T,
    states: &[&T],
    weights: [&T; 2],
    biases: Option<[&T; 2]>,
    reverse: bool,
    options: impl FnOnce(Call) -> Call,
) -> Result<Vec<T>> {
    let state = states[0].shape;
    let (steps, rows, hidden) = (x.shape[0], state[0], state[1]);
    let [input, own] = weights;
    let (input, own) = (directed(kind, &[input])?, directed(kind, &[own])?);
    let bias = biases.map(|both| directed(kind, &both)).transpose()?;
    let one = Shape::new(&[1, rows, hidden])?;
    let mut call = Call::of(kind.op, [x, &input, &own]);
    // The bias is followed by the sequence lengths; left out, all sequences have full length.
    call = call.input(bias.as_ref().map(|bias| bias.id)).input(None);
    for state in states {
        call = call.input(Onnx::reshape(state, one)?.id);
    }
    call = call.int("hidden_size", hidden as i64);
    if reverse {
        call = call.text("direction", "reverse");
    }
    call = options(call).gives(Shape::new(&[steps, 1, rows, hidden])?, x.dtype);
    for _ in states {
        call = call.gives(one, x.dtype);
    }
    let outputs = x.recording.emit(call)?;
    let mut all = vec![squeeze(&outputs[0], 1)?];
    for output in &outputs[1..] {
        all.push(squeeze(output, 0)?);
    }
    Ok(all)
}

/// Removes an axis of extent 1, given by number, since other axes may have extent 1, too.
fn squeeze(x: &T, axis: usize) -> Result<T> {
    let axes = x.recording.state().ints(&[axis as i64])?;
    let shape = x.shape.reduced(Axes::one(axis), false);
    x.recording
        .one(Call::of("Squeeze", [x]).input(axes).gives(shape, x.dtype))
}

/// Concatenates parameters, with their gates in ONNX's order, as those of one direction: `[1, …]`. Computed now if they
/// are known.
fn directed(kind: &Kind, params: &[&T]) -> Result<T> {
    let known: Option<Vec<_>> = params
        .iter()
        .map(|param| Some((param.name()?, param.constant()?)))
        .collect();
    let Some(known) = known else {
        let parts: Vec<T> = params
            .iter()
            .map(|param| reordered(kind, param))
            .collect::<Result<_>>()?;
        let joined = Onnx::concat(&parts.iter().collect::<Vec<_>>(), 0)?;
        return Onnx::reshape(&joined, Shape::new(&[&[1], joined.shape.dims()].concat())?);
    };
    let mut bytes = Vec::new();
    for (_, host) in &known {
        let gate = host.bytes().len() / kind.gates.len();
        for &from in kind.gates {
            bytes.extend_from_slice(&host.bytes()[from * gate..(from + 1) * gate]);
        }
    }
    let first = &known[0].1;
    let rows: usize = known.iter().map(|(_, host)| host.shape()[0]).sum();
    let shape = Shape::new(&[&[1, rows], &first.shape()[1..]].concat())?;
    let host = HostTensor::from_bytes(first.dtype(), shape, &bytes)?;
    let name = format!("{}.{}", known[0].0, kind.suffix);
    let id = params[0].recording.state().named_constant(name, host);
    Ok(params[0].recording.tensor(id))
}

/// A parameter with its gates in ONNX's order.
fn reordered(kind: &Kind, param: &T) -> Result<T> {
    let rows = param.shape[0] / kind.gates.len();
    let gate = |&from: &usize| {
        let mut ranges: Vec<_> = param.shape.iter().map(|&dim| SliceRange::full(dim)).collect();
        ranges[0] = SliceRange::new(from * rows, rows, 1);
        Onnx::slice(param, &ranges)
    };
    if kind.gates.len() == 1 {
        return Ok(param.clone());
    }
    let parts: Vec<T> = kind.gates.iter().map(gate).collect::<Result<_>>()?;
    Onnx::concat(&parts.iter().collect::<Vec<_>>(), 0)
}
