//! Gelu as exporters write it for op sets below 20: in five nodes.

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use super::View;
use crate::graph::{ElementType, Node, ValueId};
use crate::import::ops::MICROSOFT;

impl View<'_> {
    /// `x · 0.5 · (1 + erf(x / √2))`, in any order, which ends with this node.
    pub(super) fn gelu(&self, last: &Node) -> Option<Node> {
        let mut factors = Vec::with_capacity(3);
        for id in operands(last, "Mul")? {
            match self.alone(id).and_then(|node| operands(node, "Mul")) {
                Some(inner) => factors.extend(inner),
                None => factors.push(id),
            }
        }
        let half = factors.iter().position(|&id| self.is(id, 0.5))?;
        factors.swap_remove(half);
        let &[a, b] = factors.as_slice() else { return None };
        let x = [(a, b), (b, a)]
            .into_iter()
            .find_map(|(x, sum)| (self.erf_and_one(sum)? == x).then_some(x))?;
        Some(Node {
            name: last.name.clone(),
            op_type: "Gelu".to_owned(),
            domain: MICROSOFT.to_owned(),
            inputs: vec![Some(x)],
            outputs: last.outputs.clone(),
            ..Node::default()
        })
    }

    /// The `x` of `1 + erf(x / √2)`.
    fn erf_and_one(&self, sum: ValueId) -> Option<ValueId> {
        let erf = self.other(operands(self.alone(sum)?, "Add")?, 1.0)?;
        let erf = self
            .alone(erf)
            .filter(|node| node.op_type == "Erf" && node.domain.is_empty())?;
        let scaled = self.alone((*erf.inputs.first()?)?)?;
        match operands(scaled, "Div") {
            Some([x, by]) => self.is(by, SQRT_2).then_some(x),
            None => self.other(operands(scaled, "Mul")?, FRAC_1_SQRT_2),
        }
    }

    /// The operand beside a number.
    pub(super) fn other(&self, [a, b]: [ValueId; 2], number: f32) -> Option<ValueId> {
        match (self.is(a, number), self.is(b, number)) {
            (true, _) => Some(b),
            (_, true) => Some(a),
            _ => None,
        }
    }

    /// Whether a value is this number in f32, give or take a digit that an exporter left out.
    pub(super) fn is(&self, id: ValueId, number: f32) -> bool {
        self.constants.get(&id).is_some_and(|found| {
            let host = found.host();
            let one = found.element() == ElementType::F32 && host.shape().numel() == 1 && host.shape().rank() <= 1;
            one && (host.to_f64_vec()[0] as f32 - number).abs() < 1e-6
        })
    }
}

/// Both operands of an op of ONNX's that has two.
pub(super) fn operands(node: &Node, op_type: &str) -> Option<[ValueId; 2]> {
    match node.inputs.as_slice() {
        &[Some(a), Some(b)] if node.op_type == op_type && node.domain.is_empty() => Some([a, b]),
        _ => None,
    }
}
