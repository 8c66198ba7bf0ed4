//! From a recording to a graph.

use std::collections::{HashMap, HashSet};

use polygrad_core::{Error, Result};

use super::passes;
use super::recording::State;
use crate::graph::{Body, Dim, Graph, Header, Node, ValueId, ValueType, free_name};

/// Properties of the graph that are not part of the recording.
pub(super) struct About<'a> {
    pub(super) name: &'a str,
    pub(super) doc_string: &'a str,
    /// Names of the outputs, in order.
    pub(super) outputs: &'a [String],
    pub(super) fold_batch_norm: bool,
}

/// The graph that computes these values.
///
/// # Errors
/// If two things have the same name.
pub(super) fn graph(state: &mut State, outputs: &[ValueId], about: &About<'_>) -> Result<Graph> {
    let outputs = own_values(state, outputs);
    passes::run(state, &outputs, about.fold_batch_norm)?;
    let mut names = Names::default();
    for &input in &state.inputs {
        names.claim(input, state.values[input.index()].name.as_deref().unwrap_or("input"))?;
    }
    for (&output, name) in outputs.iter().zip(about.outputs) {
        names.claim(output, name)?;
    }
    let mut writer = Writer {
        state,
        names,
        body: Body {
            name: about.name.to_owned(),
            ..Body::default()
        },
        ids: HashMap::new(),
    };
    for id in state.inputs.clone() {
        let new = writer.value(id)?;
        writer.body.inputs.push(new);
    }
    for node in &state.nodes {
        writer.node(node)?;
    }
    for id in outputs {
        let new = writer.value(id)?;
        writer.body.outputs.push(new);
    }
    let header = Header {
        ir_version: state.opset.ir_version(),
        doc_string: about.doc_string.to_owned(),
        ..Header::default()
    };
    let graph = Graph {
        header,
        opsets: HashMap::from([(String::new(), state.opset.version())]),
        functions: Vec::new(),
        body: writer.body,
    };
    graph.check()?;
    Ok(graph)
}

/// Makes each output a value of its own: an output that is also an input, a constant or another output is copied.
fn own_values(state: &mut State, outputs: &[ValueId]) -> Vec<ValueId> {
    let mut seen: HashSet<ValueId> = state.inputs.iter().copied().collect();
    let mut own = Vec::with_capacity(outputs.len());
    for &id in outputs {
        let is_own = state.values[id.index()].constant.is_none() && seen.insert(id);
        own.push(if is_own { id } else { state.copy(id) });
    }
    own
}

/// The names that are taken.
#[derive(Default)]
struct Names {
    of: HashMap<ValueId, String>,
    taken: HashSet<String>,
}

impl Names {
    fn claim(&mut self, id: ValueId, name: &str) -> Result<()> {
        if name.is_empty() || !self.taken.insert(name.to_owned()) {
            return Err(Error::invalid(format!(
                "two values of the graph would be called {name:?}, or one has no name"
            ))
            .with_hint("name inputs and outputs apart from each other and from the parameters"));
        }
        self.of.insert(id, name.to_owned());
        Ok(())
    }

    /// The name, or a similar one that is free.
    fn free(&mut self, name: &str) -> String {
        let free = free_name(name, |name| self.taken.contains(name));
        self.taken.insert(free.clone());
        free
    }
}

struct Writer<'a> {
    state: &'a State,
    names: Names,
    body: Body,
    /// From a value of the recording to its id in the body.
    ids: HashMap<ValueId, ValueId>,
}

impl Writer<'_> {
    /// The value's id in the body. A constant is added to the body at its first use.
    fn value(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(&known) = self.ids.get(&id) {
            return Ok(known);
        }
        let value = &self.state.values[id.index()];
        let new = match &value.constant {
            Some(host) => {
                let name = match &value.name {
                    Some(name) => {
                        self.names.claim(id, name)?;
                        name.clone()
                    }
                    None => self.names.free("constant"),
                };
                self.body.add_initializer(name, host.clone())
            }
            None => {
                let dims = value.extents.iter().map(|extent| match extent.as_fixed() {
                    Some(fixed) => Dim::Fixed(fixed as usize),
                    None => Dim::Named(self.state.symbols.text(extent)),
                });
                let ty = ValueType::tensor(value.dtype, dims.collect());
                let name = self.names.of.get(&id).cloned().unwrap_or_default();
                self.body.add_value(name, Some(ty))
            }
        };
        self.ids.insert(id, new);
        Ok(new)
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let mut new = node.clone();
        let place = if node.name.is_empty() {
            String::new()
        } else {
            format!("{}/", node.name)
        };
        new.name = self.names.free(&format!("{place}{}", node.op_type));
        for input in new.inputs.iter_mut().flatten() {
            *input = self.value(*input)?;
        }
        for (i, output) in new.outputs.iter_mut().enumerate() {
            let Some(output) = output else {
                continue;
            };
            if !self.names.of.contains_key(output) {
                let suffix = if i == 0 { String::new() } else { format!("_{i}") };
                let name = self.names.free(&format!("{}_output{suffix}", new.name));
                self.names.of.insert(*output, name);
            }
            *output = self.value(*output)?;
        }
        self.body.nodes.push(new);
        Ok(())
    }
}
