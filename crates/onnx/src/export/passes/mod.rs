//! What is done to a recording before it is written.

mod convolution;
mod dead;

use std::collections::HashMap;

use polygrad_core::Result;

use super::recording::State;
use crate::graph::ValueId;

/// Runs all passes. `fold` also folds batch normalisation into the convolution before it.
pub(super) fn run(state: &mut State, outputs: &[ValueId], fold: bool) -> Result<()> {
    dead::remove(state, outputs);
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

/// The node that gives each value.
fn producers(state: &State) -> HashMap<ValueId, usize> {
    let nodes = state.nodes.iter().enumerate();
    nodes
        .flat_map(|(i, node)| node.outputs.iter().flatten().map(move |&id| (id, i)))
        .collect()
}
