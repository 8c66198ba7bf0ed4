//! Activations of i8 as bytes, with 128 added to values and zero points, which represents the same numbers: products
//! take bytes, and an i8 would be stored as an i32 between two of them.

use std::collections::{HashMap, HashSet};

use polygrad_core::{HostTensor, Result};

use super::{MOVES, View};
use crate::graph::{Body, ElementType, Literal, Node, ValueId};
use crate::import::ops::MICROSOFT;

/// Zero points as bytes, in values beyond those of the body.
pub(super) type Constants = Vec<(ValueId, Literal)>;

/// The operands of a node that may be quantized, each with its zero point.
fn reads(node: &Node) -> Vec<(usize, usize)> {
    let fixed: &[(usize, usize)] = match (node.domain.as_str(), node.op_type.as_str()) {
        ("" | MICROSOFT, "DequantizeLinear") | (MICROSOFT, "QLinearSigmoid" | "QLinearLeakyRelu") => &[(0, 2)],
        ("", "QLinearConv" | "QLinearMatMul") | (MICROSOFT, "QGemm" | "QLinearAdd" | "QLinearMul") => &[(0, 2), (3, 5)],
        (MICROSOFT, "MatMulIntegerToFloat") => &[(0, 4), (1, 5)],
        (MICROSOFT, "QLinearConcat") => {
            return (2..node.inputs.len()).step_by(3).map(|data| (data, data + 2)).collect();
        }
        _ => &[],
    };
    fixed.to_vec()
}

/// The zero point of a node's result.
fn writes(node: &Node) -> Option<usize> {
    match (node.domain.as_str(), node.op_type.as_str()) {
        ("" | MICROSOFT, "QuantizeLinear") => Some(2),
        (MICROSOFT, "QLinearSigmoid" | "QLinearLeakyRelu") => Some(4),
        ("", "QLinearConv" | "QLinearMatMul") | (MICROSOFT, "QLinearAdd" | "QLinearMul") => Some(7),
        (MICROSOFT, "QGemm") => Some(8),
        (MICROSOFT, "QLinearConcat") => Some(1),
        _ => None,
    }
}

fn moves(node: &Node) -> bool {
    node.domain.is_empty() && MOVES.contains(&node.op_type.as_str()) && node.outputs.len() == 1
}

fn operand(node: &Node, i: usize) -> Option<ValueId> {
    node.inputs.get(i).copied().flatten()
}

/// Replaces the zero points of all nodes that write or read such activations, unless other nodes read them too; `nodes`
/// has replacements for nodes of the body.
pub(super) fn held(
    view: &View<'_>,
    body: &Body,
    nodes: &mut HashMap<usize, Node>,
    constants: &mut Constants,
) -> Result<()> {
    let signed = |id: Option<ValueId>| {
        let literal = view.constants.get(&id?).copied()?;
        (literal.element() == ElementType::I8).then_some(literal)
    };
    let kept = kept(body, nodes, |id| signed(id).is_some());
    let mut held = HashSet::new();
    let mut made = HashMap::new();
    for (i, own) in body.nodes.iter().enumerate() {
        let node = nodes.get(&i).unwrap_or(own);
        let Some(Some(output)) = node.outputs.first().copied() else {
            continue;
        };
        let read = |&&(data, zero): &&(usize, usize)| {
            operand(node, data).is_some_and(|id| held.contains(&id)) && signed(operand(node, zero)).is_some()
        };
        let mut zeros: Vec<usize> = reads(node).iter().filter(read).map(|&(_, zero)| zero).collect();
        let writes = writes(node).filter(|&zero| signed(operand(node, zero)).is_some() && !kept.contains(&output));
        let moved = moves(node) && operand(node, 0).is_some_and(|id| held.contains(&id));
        if writes.is_some() || moved {
            held.insert(output);
        }
        zeros.extend(writes);
        let mut changed = None;
        for zero in zeros {
            let Some((id, literal)) = operand(node, zero).and_then(|id| Some((id, signed(Some(id))?))) else {
                continue;
            };
            let next = ValueId((body.values.len() + constants.len()) as u32);
            let byte = *made.entry(id).or_insert(next);
            if byte == next {
                constants.push((byte, raised(literal)?));
            }
            changed.get_or_insert_with(|| node.clone()).inputs[zero] = Some(byte);
        }
        nodes.extend(changed.map(|node| (i, node)));
    }
    Ok(())
}

/// Values that must keep their type, since other nodes read them.
fn kept(body: &Body, nodes: &HashMap<usize, Node>, signed: impl Fn(Option<ValueId>) -> bool) -> HashSet<ValueId> {
    let mut kept: HashSet<ValueId> = body.outputs.iter().copied().collect();
    for (i, own) in body.nodes.iter().enumerate().rev() {
        let node = nodes.get(&i).unwrap_or(own);
        let output = node.outputs.first().copied().flatten();
        for (at, id) in node.inputs.iter().enumerate() {
            let read = |&(data, zero): &(usize, usize)| data == at && signed(operand(node, zero));
            let moved = at == 0 && moves(node) && output.is_some_and(|output| !kept.contains(&output));
            if !moved && !reads(node).iter().any(read) {
                kept.extend(id);
            }
        }
        for (_, attribute) in &node.attributes {
            let captures = attribute.bodies().iter().flat_map(|body| &body.captures);
            kept.extend(captures.map(|capture| capture.outer));
        }
    }
    kept
}

/// i8 numbers as bytes, with 128 added.
fn raised(literal: &Literal) -> Result<Literal> {
    let numbers = literal.host().to_f64_vec();
    let bytes: Vec<u8> = numbers.into_iter().map(|x| (x + 128.0) as u8).collect();
    let host = HostTensor::new(*literal.host().shape(), bytes)?;
    Literal::new(ElementType::U8, host)
}
