//! Joins the two directions of a recurrent layer into one call.

use polygrad_core::{HostTensor, Result, Shape};

use super::{free_name, order, remove};
use crate::export::call::Call;
use crate::export::recording::State;
use crate::graph::{Attribute, Node, ValueId};

/// The index of the first operand that is a state. Before it are the input, two weights, the bias and the lengths.
const STATES: usize = 5;

/// Joins each pair of calls on the same input, one forwards and one in reverse, into one call.
pub(super) fn join(state: &mut State, outputs: &[ValueId]) -> Result<()> {
    let count = state.nodes.len();
    let mut gone = Vec::new();
    for forward in 0..count {
        let partner = (0..count).find(|i| !gone.contains(i) && are_directions(state, forward, *i));
        let Some(reverse) = partner else { continue };
        let ends = [forward, reverse].map(|i| squeezed(state, outputs, state.nodes[i].outputs[0]));
        let [Some(ends), Some(ends_reverse)] = ends else {
            continue;
        };
        let first = state.nodes.len();
        both(state, forward, reverse, [ends, ends_reverse])?;
        let layer = state.nodes[forward].name.clone();
        state.nodes[first..]
            .iter_mut()
            .for_each(|node| node.name.clone_from(&layer));
        gone.extend([Some(forward), Some(reverse), ends, ends_reverse].into_iter().flatten());
    }
    if !gone.is_empty() {
        gone.sort_unstable();
        remove(state, &gone);
        order::restore(state);
    }
    Ok(())
}

fn op(node: &Node) -> Option<&'static str> {
    ["RNN", "GRU", "LSTM"].into_iter().find(|op| *op == node.op_type)
}

/// Whether two calls are the forward and the reverse direction of one layer with known parameters.
fn are_directions(state: &State, forward: usize, reverse: usize) -> bool {
    let (a, b) = (&state.nodes[forward], &state.nodes[reverse]);
    let reversed = matches!(b.attribute("direction"), Some(Attribute::String(text)) if text == "reverse");
    if op(a).is_none() || a.op_type != b.op_type || a.attribute("direction").is_some() || !reversed {
        return false;
    }
    let shared = |node: &Node| {
        let own = |(name, _): &&(String, Attribute)| name != "direction" && name != "activations";
        format!("{:?}", node.attributes.iter().filter(own).collect::<Vec<_>>())
    };
    let alike = |i: usize| match (a.inputs[i], b.inputs[i]) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            let (x, y) = (&state.values[a.index()], &state.values[b.index()]);
            let known = i >= STATES || (x.constant.is_some() && y.constant.is_some());
            known && (x.shape, x.dtype) == (y.shape, y.dtype)
        }
        _ => false,
    };
    let lengths = a.inputs.get(STATES - 1).copied().flatten();
    a.inputs.len() == b.inputs.len()
        && a.inputs[0] == b.inputs[0]
        && (1..a.inputs.len()).all(alike)
        && lengths.is_none()
        && shared(a) == shared(b)
        && !needs(state, forward.max(reverse), forward.min(reverse))
}

/// Whether a call depends, directly or through others, on an earlier one.
fn needs(state: &State, later: usize, earlier: usize) -> bool {
    let mut made = state.nodes[earlier].outputs.clone();
    for node in &state.nodes[earlier + 1..=later] {
        if node.inputs.iter().any(|input| input.is_some() && made.contains(input)) {
            made.extend(&node.outputs);
        }
    }
    made.contains(&state.nodes[later].outputs[0])
}

/// The call that squeezes the axis of directions out of a layer's output, if that is the output's only use.
/// `Some(None)` if the output is unused.
fn squeezed(state: &State, outputs: &[ValueId], id: Option<ValueId>) -> Option<Option<usize>> {
    let Some(id) = id else { return Some(None) };
    let mut users = (0..state.nodes.len()).filter(|&i| state.nodes[i].inputs.contains(&Some(id)));
    let (first, second) = (users.next(), users.next());
    let squeezes = first.is_none_or(|i| state.nodes[i].op_type == "Squeeze");
    (squeezes && second.is_none() && !outputs.contains(&id)).then_some(first)
}

/// Records the joint call, and the calls that derive the results of each direction from it. `squeezes` are the calls
/// that squeeze the axis of directions out of the outputs.
fn both(state: &mut State, forward: usize, reverse: usize, squeezes: [Option<usize>; 2]) -> Result<()> {
    let [a, b] = [forward, reverse].map(|i| state.nodes[i].clone());
    let Some(op) = op(&a) else { return Ok(()) };
    let mut call = Call::new(op).input(a.inputs[0]);
    for i in 1..a.inputs.len() {
        let joined = match (a.inputs[i], b.inputs[i]) {
            (Some(a), Some(b)) if i < STATES => Some(parameter(state, a, b)?),
            (Some(a), Some(b)) => Some(stacked(state, a, b)?),
            _ => None,
        };
        call = call.input(joined);
    }
    for (name, value) in &a.attributes {
        call = call.attribute(
            name,
            match (value, b.attribute(name)) {
                (Attribute::Strings(names), Some(Attribute::Strings(others))) => {
                    Attribute::Strings([&names[..], others].concat())
                }
                _ => value.clone(),
            },
        );
    }
    call = call.text("direction", "bidirectional");
    let results = a.outputs.len().max(b.outputs.len());
    for i in 0..results {
        let one = [&a, &b].into_iter().find_map(|node| *node.outputs.get(i)?);
        let Some(one) = one else { continue };
        let value = &state.values[one.index()];
        let mut dims = value.shape.dims().to_vec();
        dims[usize::from(i == 0)] = 2;
        call = call.gives(Shape::new(&dims)?, value.dtype);
    }
    let made = state.append(call)?;
    if squeezes.iter().any(Option::is_some) {
        let joined = side_by_side(state, made[0])?;
        let parts = squeezes.map(|i| state.nodes[i?].outputs[0]);
        split(state, joined, 2, parts)?;
    }
    for (i, &result) in made.iter().enumerate().skip(1) {
        split(state, result, 0, [&a, &b].map(|node| *node.outputs.get(i)?))?;
    }
    Ok(())
}

/// Two parameters concatenated, under a new name.
fn parameter(state: &mut State, a: ValueId, b: ValueId) -> Result<ValueId> {
    let of = |id: ValueId| state.values[id.index()].constant.as_ref();
    let (Some(first), Some(second)) = (of(a), of(b)) else {
        return stacked(state, a, b);
    };
    let mut dims = first.shape().dims().to_vec();
    dims[0] += second.shape()[0];
    let bytes = [first.bytes(), second.bytes()].concat();
    let host = HostTensor::from_bytes(first.dtype(), Shape::new(&dims)?, &bytes)?;
    let name = state.values[a.index()]
        .name
        .clone()
        .unwrap_or_else(|| "weight".to_owned());
    let name = format!("{name}.both");
    let same = |known: &HostTensor| known.shape() == host.shape() && known.bytes() == host.bytes();
    let known = state
        .values
        .iter()
        .position(|value| value.name.as_ref() == Some(&name) && value.constant.as_ref().is_some_and(same));
    if let Some(known) = known {
        // The layer is called more than once.
        return Ok(ValueId(known as u32));
    }
    let name = free_name(state, &name);
    Ok(state.named_constant(name, host))
}

/// Two values `[1, …]` concatenated.
fn stacked(state: &mut State, a: ValueId, b: ValueId) -> Result<ValueId> {
    let (shape, dtype) = (state.values[a.index()].shape, state.values[a.index()].dtype);
    let call = Call::new("Concat").input(a).input(b).int("axis", 0);
    Ok(state.append(call.gives(shape.with_dim(0, 2), dtype))?[0])
}

/// Outputs `[T, 2, N, H]` as `[T, N, 2H]`.
fn side_by_side(state: &mut State, outputs: ValueId) -> Result<ValueId> {
    let (shape, dtype) = (state.values[outputs.index()].shape, state.values[outputs.index()].dtype);
    let [steps, rows, size] = [shape[0], shape[2], shape[3]];
    let call = Call::new("Transpose").input(outputs).ints("perm", [0, 2, 1, 3]);
    let turned = state.append(call.gives(Shape::new(&[steps, rows, 2, size])?, dtype))?[0];
    let target = state.ints(&[0, 0, 2 * size as i64])?;
    let call = Call::new("Reshape").input(turned).input(target);
    Ok(state.append(call.gives(Shape::new(&[steps, rows, 2 * size])?, dtype))?[0])
}

/// Splits a value into two halves. A half that is given as `Some` gets that id.
fn split(state: &mut State, whole: ValueId, axis: usize, halves: [Option<ValueId>; 2]) -> Result<()> {
    if halves == [None; 2] {
        return Ok(());
    }
    let (shape, dtype) = (state.values[whole.index()].shape, state.values[whole.index()].dtype);
    let half = shape[axis] / 2;
    let sizes = state.ints(&[half as i64; 2])?;
    let part = shape.with_dim(axis, half);
    let call = Call::new("Split").input(whole).input(sizes).int("axis", axis as i64);
    state.append(call.gives(part, dtype).gives(part, dtype))?;
    if let Some(node) = state.nodes.last_mut() {
        for (output, half) in node.outputs.iter_mut().zip(halves) {
            *output = half.or(*output);
        }
    }
    Ok(())
}
