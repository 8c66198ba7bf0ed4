//! Random ONNX graphs, each valid by construction. They are run node by node, fused, after writing and reading, and by
//! ONNX Runtime if it is available.
//!
//! A difference that perturbed inputs do not explain is reduced to the smallest graph that shows it, printed, and saved
//! as a file.

mod judge;
mod make;
mod nodes;
mod reduce;
mod windows;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use polygrad::Device;
use polygrad_console::failure::{Failure, Result};
use polygrad_console::progress::say;
use polygrad_onnx::Engine;
use polygrad_onnx::graph::{Graph, Literal, ValueId, ValueType};

use self::judge::{Allowed, Fault, Way, run};
use crate::peers::Peers;

/// The results of a run over many graphs.
#[derive(Default)]
pub(crate) struct Report {
    /// The number of graphs.
    pub(crate) graphs: u64,
    /// The number of nodes in them.
    pub(crate) nodes: usize,
    /// The number of graphs that ONNX Runtime ran, too.
    pub(crate) beside: u64,
    /// The differences found.
    pub(crate) faults: Vec<String>,
    /// How often ONNX Runtime crashed or hung.
    pub(crate) crashes: usize,
}

/// The graphs to generate: `count` of a seed, starting with index `first`.
pub(crate) struct Drawn {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// The device and the external engines to run graphs on.
#[derive(Clone, Copy)]
pub(crate) struct Bench<'a> {
    pub(crate) device: &'a Device,
    pub(crate) peers: &'a Peers,
}

/// Generates and checks graphs. Those that differ are saved in a folder, if one is given.
///
/// # Errors
/// If a case cannot be written.
pub(crate) fn check(bench: Bench<'_>, drawn: &Drawn, cases: Option<&Path>) -> Result<Report> {
    let (device, seed) = (bench.device, drawn.seed);
    let beside = Engine::Ort.available().is_ok();
    let mut report = Report::default();
    let mut lacking: BTreeMap<String, u64> = BTreeMap::new();
    for index in drawn.first..drawn.first.saturating_add(drawn.count) {
        for crash in bench.peers.crashes() {
            report.crashes += 1;
            say(&format!("seed {seed}, before graph {index}: {crash}"));
        }
        let drawn = make::graph(seed, index, device);
        report.graphs += 1;
        report.nodes += drawn.graph.body.nodes.len();
        // Graphs rejected by Polygrad, but not by ONNX Runtime.
        for (graph, inputs, why) in drawn.refused.iter().take(if beside { 2 } else { 0 }) {
            if run(graph, inputs, bench, Way::Ort).is_ok() {
                let what = format!("refused here, and not by ONNX Runtime: {why}");
                let fault = Fault {
                    way: Way::Plain,
                    output: None,
                    what,
                };
                tell(&mut report, (seed, index), graph, inputs, &fault, cases)?;
            }
        }
        if drawn.graph.body.outputs.is_empty() {
            continue;
        }
        let allowed = match Allowed::of(&drawn.graph, &drawn.inputs, bench) {
            Ok(allowed) => allowed,
            Err(error) => {
                let fault = Fault {
                    way: Way::Plain,
                    output: None,
                    what: error.to_string(),
                };
                tell(&mut report, (seed, index), &drawn.graph, &drawn.inputs, &fault, cases)?;
                continue;
            }
        };
        let again = drawn.graph.to_bytes().and_then(Graph::from_bytes);
        let again = again.and_then(|graph| run(&graph, &drawn.inputs, bench, Way::Fused));
        let mut ways = vec![(Way::Fused, again)];
        if beside {
            match run(&drawn.graph, &drawn.inputs, bench, Way::Ort) {
                // An op or an element type for which it has no kernel.
                Err(error) if error.kind() == polygrad::ErrorKind::Unsupported => {
                    *lacking.entry(error.to_string()).or_default() += 1
                }
                found => {
                    report.beside += 1;
                    ways.push((Way::Ort, found));
                }
            }
        }
        for (way, found) in ways {
            if let Some(fault) = allowed.fault(way, found) {
                let smallest = reduce::reduce(drawn.graph.clone(), drawn.inputs.clone(), fault, bench);
                tell(
                    &mut report,
                    (seed, index),
                    &smallest.graph,
                    &smallest.inputs,
                    &smallest.fault,
                    cases,
                )?;
            }
        }
    }
    for (why, count) in lacking {
        say(&format!("left to us alone, {count} times: {why}"));
    }
    Ok(report)
}

/// A graph, and inputs for it.
#[cfg(test)]
pub(crate) fn drawn(seed: u64, index: u64) -> (Graph, Vec<Literal>) {
    let drawn = make::graph(seed, index, &polygrad_conformance::reference());
    (drawn.graph, drawn.inputs)
}

/// Prints a fault, and saves it.
fn tell(
    report: &mut Report,
    (seed, index): (u64, u64),
    graph: &Graph,
    inputs: &[Literal],
    fault: &Fault,
    cases: Option<&Path>,
) -> Result<()> {
    let text = format!(
        "seed {seed}, graph {index}, {}: {}\n{}",
        fault.way.name(),
        fault.what,
        listing(graph)
    );
    say(&text);
    if let Some(folder) = cases {
        let folder = folder.join(format!("graph-{seed}-{index}"));
        let failed = |error| Failure::io("write", &folder, &error);
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::write(folder.join("model.onnx"), graph.to_bytes()?).map_err(failed)?;
        for (i, (input, id)) in inputs.iter().zip(&graph.body.inputs).enumerate() {
            fs::write(
                folder.join(format!("input_{i}.pb")),
                input.encode(graph.body.name_of(*id)),
            )
            .map_err(failed)?;
        }
        fs::write(folder.join("README"), &text).map_err(failed)?;
    }
    report.faults.push(text);
    Ok(())
}

/// The nodes of a graph, one a line.
fn listing(graph: &Graph) -> String {
    let body = &graph.body;
    let shape = |id: ValueId| match (&body.initializer(id), &body.value(id).ty) {
        (Some(fixed), _) => {
            let host = fixed.tensor.host();
            let values = if host.shape().numel() <= 4 {
                format!(" = {:?}", host.to_f64_vec())
            } else {
                String::new()
            };
            format!(
                "{}: {}{}{values}",
                body.name_of(id),
                fixed.tensor.element(),
                host.shape()
            )
        }
        (None, Some(ValueType::Tensor(ty))) if body.inputs.contains(&id) => format!("{}: {ty}", body.name_of(id)),
        _ => body.name_of(id).to_owned(),
    };
    let lines = body.nodes.iter().map(|node| {
        let names = |ids: &[Option<ValueId>]| {
            let names = ids.iter().map(|id| id.map_or_else(|| "-".to_owned(), shape));
            names.collect::<Vec<_>>().join(", ")
        };
        let attributes: Vec<String> = node
            .attributes
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        format!(
            "  {} = {}({}) {}",
            names(&node.outputs),
            node.op_type,
            names(&node.inputs),
            attributes.join(" ")
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}
