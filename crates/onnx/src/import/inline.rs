//! Inlining: functions of the model replace the nodes that call them.

use std::collections::HashMap;
use std::sync::Arc;

use polygrad_core::{Result, printable};

use crate::graph::{Attribute, Body, Function, Graph, Node, ValueId, malformed};

/// The most nodes after inlining: functions that call functions can grow without bound.
const MAX_NODES: usize = 1 << 20;
/// The deepest nesting of functions and bodies.
const MAX_DEPTH: usize = 32;
/// The most bytes of names after inlining: each name includes those of the calls around it.
const MAX_NAMES: usize = 1 << 28;

/// The graph's body with the calls of its functions inlined.
///
/// # Errors
/// If functions call each other in a cycle.
pub(crate) fn inline(graph: &Graph) -> Result<Body> {
    if graph.functions.is_empty() {
        return Ok(graph.body.clone());
    }
    let mut functions = HashMap::new();
    for function in &graph.functions {
        functions.insert(
            (
                function.domain.as_str(),
                function.name.as_str(),
                function.overload.as_str(),
            ),
            function,
        );
    }
    let mut inliner = Inliner {
        functions,
        open: Vec::new(),
        nodes: 0,
        names: 0,
    };
    inliner.body(&graph.body, &HashMap::new(), 0)
}

struct Inliner<'a> {
    functions: HashMap<(&'a str, &'a str, &'a str), &'a Function>,
    /// The functions that are being inlined, the outermost first.
    open: Vec<&'a Function>,
    nodes: usize,
    /// Bytes of names.
    names: usize,
}

type Attributes = HashMap<String, Attribute>;

impl<'a> Inliner<'a> {
    fn body(&mut self, body: &Body, given: &Attributes, depth: usize) -> Result<Body> {
        let mut out = Body {
            nodes: Vec::new(),
            ..body.clone()
        };
        for node in &body.nodes {
            self.node(&mut out, node.clone(), given, depth)?;
        }
        Ok(out)
    }

    /// Adds a node, whose values already are those of `out`, to `out`.
    fn node(&mut self, out: &mut Body, mut node: Node, given: &Attributes, depth: usize) -> Result<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || self.names > MAX_NAMES {
            return Err(malformed(format!(
                "the calls of the model's functions become more than {MAX_NODES} nodes, or their names more than {MAX_NAMES} bytes"
            )));
        }
        if depth > MAX_DEPTH {
            return Err(malformed(format!(
                "functions and bodies of the model are nested more than {MAX_DEPTH} deep"
            )));
        }
        let function = self.open.last();
        node.version = function.and_then(|function| function.opsets.get(&node.domain).copied());
        let mut attributes = Vec::with_capacity(node.attributes.len());
        for (name, attribute) in std::mem::take(&mut node.attributes) {
            let value = match attribute {
                // An attribute that the caller leaves out is left out here too.
                Attribute::Reference(source) => match given.get(&source) {
                    Some(value) => value.clone(),
                    None => continue,
                },
                Attribute::Body(body) => Attribute::Body(Arc::new(self.body(&body, given, depth + 1)?)),
                other => other,
            };
            attributes.push((name, value));
        }
        node.attributes = attributes;
        let key = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
        match self.functions.get(&key).copied() {
            Some(function) => {
                if let Some(first) = self.open.iter().position(|open| std::ptr::eq(*open, function)) {
                    let names = self.open[first..]
                        .iter()
                        .chain([&function])
                        .map(|open| open.name.as_str());
                    let circle: Vec<&str> = names.collect();
                    return Err(malformed(format!(
                        "the functions of the model call each other in a circle: {}",
                        printable(&circle.join(", "))
                    )));
                }
                self.open.push(function);
                let outcome = self.call(out, &node, function, depth);
                self.open.pop();
                outcome
            }
            None => {
                out.nodes.push(node);
                Ok(())
            }
        }
    }

    fn call(&mut self, out: &mut Body, node: &Node, function: &'a Function, depth: usize) -> Result<()> {
        let mut given: Attributes = HashMap::new();
        for (name, default) in &function.attributes {
            if let Some(value) = node.attribute(name).or(default.as_ref()) {
                given.insert(name.clone(), value.clone());
            }
        }
        let body = &function.body;
        let before = out.values.len();
        let mut places: Vec<Option<ValueId>> = vec![None; body.values.len()];
        let mut missing = vec![false; body.values.len()];
        for (i, input) in body.inputs.iter().enumerate() {
            places[input.index()] = node.inputs.get(i).copied().flatten();
            missing[input.index()] = places[input.index()].is_none();
        }
        // Results get the caller's names. An input that is returned, or a result that is returned twice, needs a node
        // that copies it.
        let mut copies = Vec::new();
        for (output, wanted) in body.outputs.iter().zip(&node.outputs) {
            let Some(wanted) = *wanted else { continue };
            match places[output.index()] {
                None if !missing[output.index()] => places[output.index()] = Some(wanted),
                _ => copies.push((*output, wanted)),
            }
        }
        let prefix = format!("{}/{}", node.name, function.name);
        let number = self.nodes;
        for inner in &body.nodes {
            let mut moved = inner.clone();
            let mut place = |id: ValueId| -> Option<ValueId> {
                if missing[id.index()] {
                    return None;
                }
                Some(*places[id.index()].get_or_insert_with(|| {
                    let name = format!("{prefix}/{number}/{}", body.name_of(id));
                    out.add_value(name, body.value(id).ty.clone())
                }))
            };
            for id in moved.inputs.iter_mut().chain(&mut moved.outputs) {
                *id = id.and_then(&mut place);
            }
            for (_, attribute) in &mut moved.attributes {
                if let Attribute::Body(inner) = attribute {
                    let mut moved = Body::clone(inner);
                    for capture in &mut moved.captures {
                        capture.outer =
                            place(capture.outer).ok_or_else(|| malformed("a body uses an input that is left out"))?;
                    }
                    *attribute = Attribute::Body(Arc::new(moved));
                }
            }
            moved.name = format!("{prefix}/{}", inner.name);
            self.names += moved.name.len();
            self.node(out, moved, &given, depth + 1)?;
        }
        // Names of inner calls are counted again, which only makes the bound stricter.
        self.names += out.values[before..].iter().map(|value| value.name.len()).sum::<usize>();
        for (from, to) in copies {
            let from =
                places[from.index()].ok_or_else(|| malformed("a function hands on an input that is left out"))?;
            out.nodes.push(Node {
                name: prefix.clone(),
                op_type: "Identity".into(),
                inputs: vec![Some(from)],
                outputs: vec![Some(to)],
                ..Node::default()
            });
        }
        Ok(())
    }
}
