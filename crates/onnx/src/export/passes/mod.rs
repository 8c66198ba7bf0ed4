//! Passes over a recording before it is written.

mod convolution;
mod dead;
mod directions;
mod order;
mod parts;

use std::collections::HashMap;

pub(crate) use convolution::fold_statistics;

use polygrad_core::Result;

use super::recording::State;
use crate::graph::ValueId;

/// Runs all passes. `fold` also folds batch normalisation into the convolution before it.
pub(super) fn run(state: &mut State, outputs: &[ValueId], fold: bool) -> Result<()> {
    dead::remove(state, outputs);
    directions::join(state, outputs)?;
    parts::join(state, outputs);
    convolution::take_biases(state, outputs);
    if fold {
        convolution::fold_batch_norm(state, outputs)?;
    }
    dead::remove(state, outputs);
    Ok(())
}

/// How often each value is used.
fn uses(state: &State, outputs: &[ValueId]) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    let operands = state.nodes.iter().flat_map(|node| node.inputs.iter().flatten());
    for &id in operands.chain(outputs) {
        *uses.entry(id).or_insert(0) += 1;
    }
    uses
}

/// The node that produces each value.
fn producers(state: &State) -> HashMap<ValueId, usize> {
    let nodes = state.nodes.iter().enumerate();
    nodes
        .flat_map(|(i, node)| node.outputs.iter().flatten().map(move |&id| (id, i)))
        .collect()
}

/// The name, or a similar one that no value has.
fn free_name(state: &State, name: &str) -> String {
    let taken = |name: &str| state.values.iter().any(|value| value.name.as_deref() == Some(name));
    if !taken(name) {
        return name.to_owned();
    }
    let mut number = 1;
    while taken(&format!("{name}.{number}")) {
        number += 1;
    }
    format!("{name}.{number}")
}

/// Removes nodes, given by their indices in ascending order.
fn remove(state: &mut State, nodes: &[usize]) {
    let mut place = 0;
    state.nodes.retain(|_| {
        place += 1;
        nodes.binary_search(&(place - 1)).is_err()
    });
}
