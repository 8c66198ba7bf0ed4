//! Orders calls after their dependencies.

use super::producers;
use crate::export::recording::State;

/// Sorts calls so that each comes after its dependencies; calls already in order stay in place. There must be no
/// cycles.
pub(super) fn restore(state: &mut State) {
    let producers = producers(state);
    let mut nodes: Vec<_> = std::mem::take(&mut state.nodes).into_iter().map(Some).collect();
    let mut open: Vec<usize> = (0..nodes.len()).rev().collect();
    while let Some(&i) = open.last() {
        let Some(node) = &nodes[i] else {
            open.pop();
            continue;
        };
        let needed = node.inputs.iter().rev().flatten().filter_map(|id| producers.get(id));
        let before = open.len();
        open.extend(needed.filter(|&&needed| nodes[needed].is_some()));
        if open.len() == before {
            open.pop();
            state.nodes.extend(nodes[i].take());
        }
    }
}
