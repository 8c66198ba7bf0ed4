//! Which nodes can be quantized.

use std::collections::HashMap;

use polygrad_core::{Error, HostTensor, Result};

use super::calibrate::Ranges;
use super::numbers::Bytes;
use super::{Int8, learned};
use crate::graph::{Attribute, Body, ElementType, Node, ValueId};
use crate::import::plain_gemm;

/// A product with a constant weight.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// The index of its node.
    pub(crate) node: usize,
    /// Its name, or its op and index if it has none.
    pub(super) name: String,
    /// MatMul, Gemm or Conv.
    pub(crate) op: String,
    /// The value that is quantized.
    pub(crate) x: ValueId,
    pub(crate) weight: ValueId,
    /// The axis of the weight that becomes the axis of the outputs.
    pub(crate) axis: usize,
    pub(super) bias: Option<ValueId>,
    /// The clamping node after it, if that is the only reader of the result.
    pub(super) tail: Option<usize>,
    /// The result, after the tail.
    pub(super) y: ValueId,
    /// The ranges of its operands, if they were learned in training.
    pub(super) learned: Option<learned::Ranges>,
}

impl Layer {
    /// The encoding of its input.
    pub(super) fn input(&self, ranges: &Ranges) -> Bytes {
        self.learned
            .as_ref()
            .map_or_else(|| ranges[&self.x], |learned| learned.x)
    }

    /// The number of output channels of the weight.
    pub(super) fn outputs(&self, body: &Body) -> usize {
        let weight = body.initializer(self.weight);
        weight.map_or(0, |weight| weight.tensor.host().shape()[self.axis])
    }
}

/// The layers of a body, in execution order.
///
/// # Errors
/// When there are none.
pub(super) fn find(body: &Body, int8: Int8) -> Result<Vec<Layer>> {
    let seen = Seen::new(body);
    let nodes = body.nodes.iter().enumerate();
    let found: Vec<Layer> = nodes
        .filter(|(_, node)| int8 == Int8::Static || node.op_type != "Conv")
        .filter_map(|(i, node)| seen.layer(i, node))
        .collect();
    if found.is_empty() {
        let what = match int8 {
            Int8::Static => "no MatMul, Gemm or Conv of f32 with a constant weight",
            Int8::Dynamic => "no MatMul or Gemm of f32 with a constant weight (convolutions are quantized statically)",
        };
        return Err(
            Error::invalid(format!("there is nothing to quantize: the graph has {what}"))
                .with_hint("give a model in f32 that has such layers"),
        );
    }
    Ok(found)
}

/// A body, and how its values are used.
pub(crate) struct Seen<'a> {
    body: &'a Body,
    /// The nodes that read or capture each value.
    pub(crate) readers: HashMap<ValueId, Vec<usize>>,
    pub(super) makers: HashMap<ValueId, usize>,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(body: &'a Body) -> Self {
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        let mut makers = HashMap::new();
        for (i, node) in body.nodes.iter().enumerate() {
            let inner = node.attributes.iter().flat_map(|(_, attribute)| attribute.bodies());
            let captured = inner.flat_map(|body| body.captures.iter().map(|capture| capture.outer));
            for id in node.inputs.iter().flatten().copied().chain(captured) {
                readers.entry(id).or_default().push(i);
            }
            makers.extend(node.outputs.iter().flatten().map(|&id| (id, i)));
        }
        Self { body, readers, makers }
    }

    /// The only node that reads a value, if the value is no output.
    pub(crate) fn sole_reader(&self, id: ValueId) -> Option<usize> {
        match self.readers.get(&id).map(Vec::as_slice) {
            Some(&[reader]) if !self.body.outputs.contains(&id) => Some(reader),
            _ => None,
        }
    }

    /// The layer that a node computes, if it is one.
    pub(crate) fn layer(&self, i: usize, node: &Node) -> Option<Layer> {
        if !node.domain.is_empty() {
            return None;
        }
        let (&Some(x), &Some(weight)) = (node.inputs.first()?, node.inputs.get(1)?) else {
            return None;
        };
        let turned = matches!(node.attribute("transB"), Some(Attribute::Int(1)));
        let rank = constant(self.body, weight)?.shape().rank();
        let axis = match (node.op_type.as_str(), rank) {
            ("MatMul", 2) => 1,
            ("Gemm", 2) if plain_gemm(node) => usize::from(!turned),
            ("Conv", 3..) => 0,
            _ => return None,
        };
        let bias = node.inputs.get(2).copied().flatten();
        let outputs = constant(self.body, weight)?.shape()[axis];
        let fits = bias.is_none_or(|bias| constant(self.body, bias).is_some_and(|b| b.shape().dims() == [outputs]));
        if !fits || constant(self.body, x).is_some() {
            return None;
        }
        let made = (*node.outputs.first()?)?;
        let tail = self.sole_reader(made).filter(|&at| {
            let node = &self.body.nodes[at];
            node.domain.is_empty() && bounds(self.body, node).is_some()
        });
        let y = match tail {
            Some(at) => (*self.body.nodes[at].outputs.first()?)?,
            None => made,
        };
        let name = match node.name.as_str() {
            "" => format!("{}_{i}", node.op_type),
            name => name.to_owned(),
        };
        let op = node.op_type.clone();
        Some(Layer {
            node: i,
            name,
            op,
            x,
            weight,
            axis,
            bias,
            tail,
            y,
            learned: None,
        })
    }
}

/// An f32 constant.
fn constant(body: &Body, id: ValueId) -> Option<&HostTensor> {
    let found = body.initializer(id).filter(|_| !body.inputs.contains(&id))?;
    (found.tensor.element() == ElementType::F32).then(|| found.tensor.host())
}

/// The bounds at which an op clamps, if that is all it does.
pub(super) fn bounds(body: &Body, node: &Node) -> Option<[f64; 2]> {
    let bound = |i: usize, without: f64| match node.inputs.get(i).copied().flatten() {
        None => Some(without),
        Some(id) => constant(body, id)?.to_f64_vec().first().copied(),
    };
    match node.op_type.as_str() {
        "Relu" => Some([0.0, f64::INFINITY]),
        "Clip" => Some([bound(1, f64::NEG_INFINITY)?, bound(2, f64::INFINITY)?]),
        _ => None,
    }
}
