//! Ranges learned in training, which the graph has as pairs of QuantizeLinear and DequantizeLinear.

use std::collections::HashMap;

use polygrad_core::{Error, HostTensor, Result};

use super::numbers::{Bytes, WEIGHT};
use crate::graph::{Attribute, Body, ElementType, Initializer, Literal, Node, ValueId};

/// The learned ranges of layers' operands.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    /// The encoding of a layer's input, by the input and the weight.
    pub(super) inputs: HashMap<(ValueId, ValueId), Bytes>,
    /// The scales of weights, and their axis if there are several.
    pub(super) weights: HashMap<ValueId, (Vec<f32>, usize)>,
}

/// The ranges of one layer.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    pub(super) x: Bytes,
    pub(super) weight: Vec<f32>,
}

/// Whether a graph quantizes values while no weight is in integers yet: a model in training for 8 bits.
pub(super) fn is_learned(body: &Body) -> bool {
    let fed_by_constants = |node: &Node| {
        let x = node.inputs.first().copied().flatten();
        node.op_type == "DequantizeLinear" && x.is_none_or(|x| body.initializer(x).is_some())
    };
    body.nodes.iter().any(|node| node.op_type == "QuantizeLinear") && !body.nodes.iter().any(fed_by_constants)
}

impl Learned {
    /// The ranges of a layer, if both operands have learned ones.
    pub(super) fn of(&self, x: ValueId, weight: ValueId, axis: usize, outputs: usize) -> Option<Ranges> {
        let x = *self.inputs.get(&(x, weight))?;
        let (scales, along) = self.weights.get(&weight)?;
        let fits = scales.len() == 1 || (*along == axis && scales.len() == outputs);
        fits.then(|| Ranges {
            x,
            weight: scales.clone(),
        })
    }

    /// Updates the scales after weight `from` `[outputs, …]` was replaced by `to`, in which each output is multiplied
    /// by a factor.
    pub(super) fn scaled(&mut self, x: ValueId, [from, to]: [ValueId; 2], factors: &[f64]) {
        let Some((scales, axis)) = self.weights.get(&from) else {
            return;
        };
        if scales.len() == 1 || (*axis == 0 && scales.len() == factors.len()) {
            let each = factors.iter().zip(scales.iter().cycle());
            let scales = each.map(|(factor, scale)| match (f64::from(*scale) * factor.abs()) as f32 {
                scale if scale < f32::MIN_POSITIVE => 1.0,
                scale => scale,
            });
            let scales = scales.collect();
            self.weights.insert(to, (scales, 0));
        }
        if let Some(bytes) = self.inputs.get(&(x, from)).copied() {
            self.inputs.insert((x, to), bytes);
        }
    }
}

/// Removes the pairs from a body with computed constants, so that it is in f32. Quantized weights become the numbers
/// that their integers represent.
///
/// # Errors
/// An incomplete pair, or one whose scale is no constant.
pub(super) fn take(body: &mut Body) -> Result<Learned> {
    let mut learned = Learned::default();
    let makers: HashMap<ValueId, usize> = made_by(body, "QuantizeLinear");
    let mut aliases: HashMap<ValueId, (ValueId, Bytes)> = HashMap::new();
    let mut gone = vec![false; body.nodes.len()];
    for i in 0..body.nodes.len() {
        let node = &body.nodes[i];
        let (&[Some(x), ..], &[Some(y)]) = (node.inputs.as_slice(), node.outputs.as_slice()) else {
            continue;
        };
        if node.op_type != "DequantizeLinear" {
            continue;
        }
        if body.initializer(x).is_some() {
            let (real, scales) = dequantized(body, node)?;
            body.initializers.push(Initializer {
                value: y,
                tensor: real.into(),
            });
            learned.weights.extend(scales.map(|scales| (y, scales)));
            gone[i] = true;
            continue;
        }
        let quantized = makers.get(&x).map(|&at| (at, &body.nodes[at]));
        let Some((at, quantized)) = quantized.filter(|(_, other)| other.inputs.get(1..) == node.inputs.get(1..)) else {
            return Err(odd(
                body,
                node,
                "is not fed by a QuantizeLinear with its scale and zero point",
            ));
        };
        let from = quantized.inputs.first().copied().flatten();
        let from = from.ok_or_else(|| odd(body, node, "has no operand"))?;
        aliases.insert(y, (from, bytes(body, node)?));
        (gone[i], gone[at]) = (true, true);
    }
    bypass(body, &aliases, &mut learned);
    let mut gone = gone.into_iter();
    body.nodes.retain(|_| !gone.next().unwrap_or(false));
    Ok(learned)
}

/// Lets all nodes read the original values rather than the dequantized ones, and records for which layers that was
/// done. The scales of a weight are kept if it is transposed.
fn bypass(body: &mut Body, aliases: &HashMap<ValueId, (ValueId, Bytes)>, learned: &mut Learned) {
    let real = |id: ValueId| aliases.get(&id).map_or(id, |(from, _)| *from);
    for node in &mut body.nodes {
        if let (Some(Some(x)), Some(Some(weight))) = (node.inputs.first(), node.inputs.get(1))
            && let Some((from, bytes)) = aliases.get(x)
        {
            learned.inputs.insert((*from, *weight), *bytes);
        }
        if let ("Transpose", Some(Some(x))) = (&*node.op_type, node.inputs.first())
            && let Some((scales, axis)) = learned.weights.get(x)
            && let Some(Some(y)) = node.outputs.first()
        {
            let turned = turned(node, *axis);
            let scales = scales.clone();
            learned.weights.insert(*y, (scales, turned));
        }
        node.inputs.iter_mut().flatten().for_each(|id| *id = real(*id));
    }
    body.outputs.iter_mut().for_each(|id| *id = real(*id));
}

/// The nodes of an op, by their outputs.
fn made_by(body: &Body, op: &str) -> HashMap<ValueId, usize> {
    let nodes = body.nodes.iter().enumerate().filter(|(_, node)| node.op_type == op);
    nodes
        .filter_map(|(i, node)| Some(((*node.outputs.first()?)?, i)))
        .collect()
}

/// The position of an axis of a matrix after a transposition.
fn turned(node: &Node, axis: usize) -> usize {
    match node.attribute("perm") {
        Some(Attribute::Ints(perm)) => perm.iter().position(|&from| from == axis as i64).unwrap_or(axis),
        _ => 1 - axis.min(1),
    }
}

/// Scale and zero point of an activation.
fn bytes(body: &Body, node: &Node) -> Result<Bytes> {
    let constant = |at: usize| {
        let id = node.inputs.get(at).copied().flatten()?;
        let literal = &body.initializer(id)?.tensor;
        Some((literal.element(), literal.host().to_f64_vec()))
    };
    match (constant(1), constant(2)) {
        (Some((_, scale)), Some((ElementType::U8, zero))) if scale.len() == 1 && zero.len() == 1 => {
            if !(scale[0] > 0.0 && scale[0].is_finite()) {
                return Err(odd(body, node, &format!("has the scale {}", scale[0])));
            }
            Ok(Bytes {
                scale: scale[0] as f32,
                zero: zero[0] as u8,
            })
        }
        _ => Err(odd(
            body,
            node,
            "has no constant scale and zero point of bytes, one for all numbers",
        )),
    }
}

/// Scales, and the axis that they belong to.
type Scales = (Vec<f32>, usize);

/// The values of a weight in integers, and its scales if the integers are within -127 to 127.
fn dequantized(body: &Body, node: &Node) -> Result<(HostTensor, Option<Scales>)> {
    let constant = |at: usize| -> Result<&Literal> {
        let id = node.inputs.get(at).copied().flatten();
        let found = id.and_then(|id| body.initializer(id));
        found
            .map(|found| &found.tensor)
            .ok_or_else(|| odd(body, node, "has an operand that is no constant"))
    };
    let (numbers, scale, zero) = (constant(0)?, constant(1)?, constant(2)?);
    let shape = *numbers.host().shape();
    let axis = match node.attribute("axis") {
        Some(Attribute::Int(axis)) if *axis < 0 => (*axis + shape.rank() as i64) as usize,
        Some(Attribute::Int(axis)) => *axis as usize,
        _ => 1,
    };
    let (scales, zeros) = (scale.host().to_f64_vec(), zero.host().to_f64_vec());
    let extent = shape.dims().get(axis).copied().unwrap_or(1);
    let fits = |count: usize| count == 1 || count == extent;
    if !(fits(scales.len()) && scales.len() == zeros.len()) {
        return Err(odd(body, node, "has scales or zero points that do not fit its numbers"));
    }
    if let Some(wrong) = scales.iter().find(|scale| !(**scale > 0.0 && scale.is_finite())) {
        return Err(odd(body, node, &format!("has the scale {wrong}")));
    }
    let inner: usize = shape.dims().iter().skip(axis.saturating_add(1)).product();
    let at = |i: usize| {
        if scales.len() == 1 {
            0
        } else {
            i / inner.max(1) % extent
        }
    };
    let numbers = numbers.host().to_f64_vec().into_iter().enumerate();
    let numbers: Vec<(usize, f64)> = numbers.map(|(i, number)| (i, number - zeros[at(i)])).collect();
    let within = numbers.iter().all(|(_, number)| number.abs() <= WEIGHT);
    let real: Vec<f32> = numbers
        .into_iter()
        .map(|(i, number)| number as f32 * scales[at(i)] as f32)
        .collect();
    let scales: Vec<f32> = scales.into_iter().map(|scale| scale as f32).collect();
    Ok((HostTensor::new(shape, real)?, within.then_some((scales, axis))))
}

fn odd(body: &Body, node: &Node, what: &str) -> Error {
    let name = match (node.name.as_str(), node.outputs.first()) {
        ("", Some(Some(y))) => body.name_of(*y),
        (name, _) => name,
    };
    Error::invalid(format!("the node {name:?} ({}) {what}", node.op_type))
        .with_hint("calibrate the model with `qat::calibrate` or load its trained state before it is recorded")
}
