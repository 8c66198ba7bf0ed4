//! Calls whose results are unused.

use std::collections::HashSet;

use crate::export::recording::State;
use crate::graph::ValueId;

/// Removes calls without used results. The remaining calls lose their unused outputs at the end.
pub(super) fn remove(state: &mut State, outputs: &[ValueId]) {
    let mut wanted: HashSet<ValueId> = outputs.iter().copied().collect();
    let mut kept = Vec::with_capacity(state.nodes.len());
    for mut node in state.nodes.drain(..).rev() {
        let used = |id: &Option<ValueId>| id.is_some_and(|id| wanted.contains(&id));
        if !node.outputs.iter().any(used) {
            continue;
        }
        // Of all ops that are written, only TopK must keep both outputs.
        while node.op_type != "TopK" && node.outputs.last().is_some_and(|last| !used(last)) {
            node.outputs.pop();
        }
        wanted.extend(node.inputs.iter().flatten());
        kept.push(node);
    }
    kept.reverse();
    state.nodes = kept;
}
