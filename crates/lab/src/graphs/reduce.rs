//! The smallest part of a graph that still shows a fault.

use polygrad_onnx::graph::{Body, Graph, Literal, ValueId, ValueType};

use super::Bench;
use super::judge::{Allowed, Fault, Way, run};
use super::make::{unknown, whole};

/// A graph, its inputs, and what is wrong with it.
pub(super) struct Smallest {
    pub(super) graph: Graph,
    pub(super) inputs: Vec<Literal>,
    pub(super) fault: Fault,
}

/// Removes nodes as long as the fault remains: their results become inputs with the same values.
pub(super) fn reduce(graph: Graph, inputs: Vec<Literal>, fault: Fault, bench: Bench<'_>) -> Smallest {
    let way = fault.way;
    let mut best = Smallest { graph, inputs, fault };
    let Some(values) = all_values(&best, bench) else {
        return best;
    };
    if let Some(output) = best.fault.output {
        let only = vec![best.graph.body.outputs[output]];
        let kept = (0..best.graph.body.nodes.len()).collect();
        try_part(&mut best, &values, kept, only, way, bench);
    }
    // An earlier value becomes the only output.
    loop {
        let outputs: Vec<ValueId> = best
            .graph
            .body
            .nodes
            .iter()
            .flat_map(|node| node.outputs.iter().flatten().copied())
            .collect();
        let kept: Vec<usize> = (0..best.graph.body.nodes.len()).collect();
        let before = best.graph.body.nodes.len();
        let shorter = outputs.into_iter().take(before.saturating_sub(1)).any(|output| {
            let values = all_values(&best, bench);
            values.is_some_and(|values| try_part(&mut best, &values, kept.clone(), vec![output], way, bench))
                && best.graph.body.nodes.len() < before
        });
        if !shorter {
            break;
        }
    }
    // Nodes are removed one by one, the first ones first.
    let mut at = 0;
    while at < best.graph.body.nodes.len() {
        let Some(values) = all_values(&best, bench) else { break };
        let kept = (0..best.graph.body.nodes.len()).filter(|&i| i != at).collect();
        let outputs = best.graph.body.outputs.clone();
        let gone: Vec<ValueId> = best.graph.body.nodes[at].outputs.iter().flatten().copied().collect();
        let gives_output = gone.iter().any(|id| outputs.contains(id));
        if gives_output || !try_part(&mut best, &values, kept, outputs, way, bench) {
            at += 1;
        }
    }
    best
}

/// The content of each value of the graph, by id.
fn all_values(of: &Smallest, bench: Bench<'_>) -> Option<Vec<Option<Literal>>> {
    let mut graph = of.graph.clone();
    let made: Vec<ValueId> = graph
        .body
        .nodes
        .iter()
        .flat_map(|node| node.outputs.iter().flatten().copied())
        .collect();
    graph.body.outputs.clone_from(&made);
    let found = super::make::run(&graph, &of.inputs, bench.device).ok()?;
    let mut values = vec![None; graph.body.values.len()];
    for (id, value) in made.into_iter().zip(found) {
        values[id.index()] = Some(value);
    }
    for (id, value) in graph.body.inputs.iter().zip(&of.inputs) {
        values[id.index()] = Some(value.clone());
    }
    for initializer in &graph.body.initializers {
        values[initializer.value.index()] = Some(initializer.tensor.clone());
    }
    Some(values)
}

/// Keeps only these nodes and outputs, if the fault remains.
fn try_part(
    best: &mut Smallest,
    values: &[Option<Literal>],
    kept: Vec<usize>,
    outputs: Vec<ValueId>,
    way: Way,
    bench: Bench<'_>,
) -> bool {
    let Some((graph, inputs)) = part(&best.graph, values, &kept, &outputs) else {
        return false;
    };
    let Ok(allowed) = Allowed::of(&graph, &inputs, bench) else {
        return false;
    };
    match allowed.fault(way, run(&graph, &inputs, bench, way)) {
        // Another fault may hide behind an error.
        Some(fault) if fault.output.is_some() == best.fault.output.is_some() => {
            *best = Smallest { graph, inputs, fault };
            true
        }
        _ => false,
    }
}

/// These nodes, as far as the outputs need them; values without a node become inputs.
fn part(
    graph: &Graph,
    values: &[Option<Literal>],
    kept: &[usize],
    outputs: &[ValueId],
) -> Option<(Graph, Vec<Literal>)> {
    let old = &graph.body;
    let mut needed: Vec<ValueId> = outputs.to_vec();
    let mut nodes = Vec::new();
    for &i in kept.iter().rev() {
        let node = &old.nodes[i];
        if node.outputs.iter().flatten().any(|id| needed.contains(id)) {
            needed.extend(node.inputs.iter().flatten());
            nodes.push(i);
        }
    }
    nodes.reverse();
    let mut body = Body {
        name: old.name.clone(),
        ..Body::default()
    };
    let mut ids = vec![None; old.values.len()];
    let mut inputs = Vec::new();
    for &i in &nodes {
        let mut node = old.nodes[i].clone();
        for id in node.inputs.iter_mut().flatten() {
            let new = match ids[id.index()] {
                Some(new) => new,
                None => {
                    let value = values[id.index()].clone()?;
                    match old.initializer(*id) {
                        Some(_) => body.add_initializer(old.name_of(*id), value),
                        None => {
                            let new = body.add_value(old.name_of(*id), Some(fixed(&value)));
                            body.inputs.push(new);
                            inputs.push(value);
                            new
                        }
                    }
                }
            };
            ids[id.index()] = Some(new);
            *id = new;
        }
        for id in node.outputs.iter_mut().flatten() {
            let new = body.add_value(old.name_of(*id), None);
            ids[id.index()] = Some(new);
            *id = new;
        }
        body.nodes.push(node);
    }
    for output in outputs {
        let new = ids[output.index()]?;
        body.values[new.index()].ty = Some(unknown(values[output.index()].as_ref()?));
        body.outputs.push(new);
    }
    Some((whole(body), inputs))
}

fn fixed(value: &Literal) -> ValueType {
    ValueType::Tensor(polygrad_onnx::graph::TensorType::of(value))
}
