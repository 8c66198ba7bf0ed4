//! Splits whose parts are joined again.

use crate::export::recording::State;
use crate::graph::{Attribute, Node, ValueId};

/// Replaces a Concat of all parts of a Split along the same axis by the value that was split.
pub(super) fn join(state: &mut State, outputs: &[ValueId]) {
    for split in 0..state.nodes.len() {
        let node = &state.nodes[split];
        let (true, Some(axis), Some(whole)) = (node.op_type == "Split", axis(node), node.inputs[0]) else {
            continue;
        };
        let parts = node.outputs.clone();
        let sizes = node
            .inputs
            .get(1)
            .copied()
            .flatten()
            .map(|id| state.values[id.index()].shape.numel());
        if sizes != Some(parts.len()) {
            // Unused parts at the end were removed.
            continue;
        }
        let joins = |node: &Node| node.op_type == "Concat" && self::axis(node) == Some(axis);
        let mut gone = None;
        for (i, node) in state.nodes.iter_mut().enumerate().filter(|(_, node)| joins(node)) {
            while let Some(at) = node.inputs.windows(parts.len()).position(|inputs| inputs == parts) {
                node.inputs.splice(at..at + parts.len(), [Some(whole)]);
            }
            if node.inputs.len() == 1 && node.inputs[0] == Some(whole) {
                gone = Some(i);
            }
        }
        let own = !outputs.contains(&whole) && !state.inputs.contains(&whole);
        if let Some(joined) = gone.filter(|_| own && state.values[whole.index()].constant.is_none()) {
            // The value that was split takes the name of the joined value, which may be an output of the graph.
            let name = state.nodes.remove(joined).outputs[0];
            for id in state
                .nodes
                .iter_mut()
                .flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs))
            {
                if *id == Some(whole) {
                    *id = name;
                }
            }
            return join(state, outputs);
        }
    }
}

fn axis(node: &Node) -> Option<i64> {
    match node.attribute("axis") {
        Some(Attribute::Int(axis)) => Some(*axis),
        _ => None,
    }
}
