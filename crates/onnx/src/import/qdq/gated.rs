//! Silu and HardSwish as exporters write them: a value times its sigmoid, in two to five nodes.

use super::View;
use super::gelu::operands;
use crate::graph::{Attribute, Node, ValueId};
use crate::import::ops::MICROSOFT;

/// The sigmoid that a value is multiplied with.
enum Gate {
    Sigmoid,
    /// `min(max(x + 3, 0), 6) / 6`.
    Hard,
}

impl View<'_> {
    /// `x · sigmoid(x)` or `x · min(max(x + 3, 0), 6) / 6`, in any order, which ends with this node.
    pub(super) fn gated(&self, last: &Node) -> Option<Node> {
        let (x, gate) = match self.sixth(last) {
            Some(product) => {
                let [a, b] = operands(self.alone(product)?, "Mul")?;
                let x = [(a, b), (b, a)]
                    .into_iter()
                    .find(|&(x, open)| self.open(open) == Some(x))?;
                (x.0, Gate::Hard)
            }
            None => {
                let [a, b] = operands(last, "Mul")?;
                [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
                    let (of, gate) = self.gate(gate)?;
                    (of == x).then_some((x, gate))
                })?
            }
        };
        let node = Node {
            name: last.name.clone(),
            inputs: vec![Some(x)],
            outputs: last.outputs.clone(),
            ..Node::default()
        };
        Some(match gate {
            Gate::Sigmoid => Node {
                op_type: "QuickGelu".to_owned(),
                domain: MICROSOFT.to_owned(),
                attributes: vec![("alpha".to_owned(), Attribute::Float(1.0))],
                version: Some(1),
                ..node
            },
            Gate::Hard => Node {
                op_type: "HardSwish".to_owned(),
                version: Some(14),
                ..node
            },
        })
    }

    /// The `x` of a sigmoid of x, and its kind.
    fn gate(&self, id: ValueId) -> Option<(ValueId, Gate)> {
        let node = self.alone(id)?;
        if let Some(open) = self.sixth(node) {
            return Some((self.open(open)?, Gate::Hard));
        }
        let x = (*node.inputs.first()?).filter(|_| node.domain.is_empty())?;
        let float = |name: &str, default: f32| match node.attribute(name) {
            Some(Attribute::Float(value)) => *value,
            _ => default,
        };
        match node.op_type.as_str() {
            // Some exporters multiply with 1 first.
            "Sigmoid" => match self.alone(x).and_then(|inner| self.other(operands(inner, "Mul")?, 1.0)) {
                Some(inner) => Some((inner, Gate::Sigmoid)),
                None => Some((x, Gate::Sigmoid)),
            },
            "HardSigmoid" if (float("alpha", 0.2) - 1.0 / 6.0).abs() < 1e-6 && float("beta", 0.5) == 0.5 => {
                Some((x, Gate::Hard))
            }
            _ => None,
        }
    }

    /// The operand that a node divides by six.
    fn sixth(&self, node: &Node) -> Option<ValueId> {
        match operands(node, "Div") {
            Some([x, by]) => self.is(by, 6.0).then_some(x),
            None => self.other(operands(node, "Mul")?, 1.0 / 6.0),
        }
    }

    /// The `x` of `min(max(x + 3, 0), 6)`.
    fn open(&self, id: ValueId) -> Option<ValueId> {
        let clip = self
            .alone(id)
            .filter(|node| node.op_type == "Clip" && node.domain.is_empty())?;
        let bound = |i: usize, name: &str, number: f32| match (clip.inputs.get(i), clip.attribute(name)) {
            (Some(Some(id)), _) => self.is(*id, number),
            (_, Some(Attribute::Float(value))) => *value == number,
            _ => false,
        };
        let sum = (*clip.inputs.first()?).filter(|_| bound(1, "min", 0.0) && bound(2, "max", 6.0))?;
        self.other(operands(self.alone(sum)?, "Add")?, 3.0)
    }
}
