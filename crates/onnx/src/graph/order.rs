//! Sorts nodes after those whose results they need.

use std::collections::VecDeque;

use polygrad_core::Result;

use super::{Node, malformed};

/// Sorts nodes so that each comes after those it depends on; nodes already in order keep their order. `needs[i]` and
/// `makes[i]` are values of node `i`, numbered below `values`.
///
/// # Errors
/// If there is a cycle.
pub(super) fn sort(nodes: Vec<Node>, needs: &[Vec<u32>], values: usize) -> Result<Vec<Node>> {
    let mut maker = vec![usize::MAX; values];
    for (i, node) in nodes.iter().enumerate() {
        for output in node.outputs.iter().flatten() {
            maker[output.index()] = i;
        }
    }
    let makers = |i: usize| {
        let makers = needs[i].iter().map(|&value| maker[value as usize]);
        makers.filter(|&maker| maker != usize::MAX)
    };
    if (0..nodes.len()).all(|i| makers(i).all(|maker| maker < i)) {
        return Ok(nodes);
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut users = vec![Vec::new(); nodes.len()];
    for (i, count) in waiting.iter_mut().enumerate() {
        for maker in makers(i) {
            *count += 1;
            users[maker].push(i);
        }
    }
    let mut ready: VecDeque<usize> = (0..nodes.len()).filter(|&i| waiting[i] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(i) = ready.pop_front() {
        order.push(i);
        for &user in &users[i] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.push_back(user);
            }
        }
    }
    if order.len() < nodes.len() {
        let stuck = (0..nodes.len()).find(|&i| waiting[i] > 0);
        let (name, op) = stuck.map_or(("", ""), |i| (nodes[i].name.as_str(), nodes[i].op_type.as_str()));
        return Err(malformed(format!(
            "nodes need each other in a circle, node {name:?} ({op}) among them"
        )));
    }
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| nodes[i].take()).collect())
}
