//! Steps of other domains than ONNX's that are made ready, and activations that are part of a node.

use polygrad_core::{Activation, Result};

use super::Draft;
use super::action::Fused;
use crate::graph::{Attribute, Node};
use crate::import::ops::{Forest, unpacked_weight};
use crate::import::run::with_call;

/// The activation that a node has as an attribute: none, or `None` where it is for the node's own op.
#[expect(
    clippy::option_option,
    reason = "a node without an activation is one that can be fused"
)]
pub(super) fn attached(node: &Node) -> Option<Option<Activation>> {
    let name = match node.attribute("activation") {
        None => return Some(None),
        Some(Attribute::String(name)) => name.as_str(),
        Some(_) => return None,
    };
    let alpha = match (node.attribute("activation_params"), node.attribute("activation_alpha")) {
        (Some(Attribute::Floats(params)), _) => params.first().copied(),
        (_, Some(Attribute::Float(alpha))) => Some(*alpha),
        _ => None,
    };
    match (name, alpha.map(f64::from)) {
        ("Relu", _) => Some(Some(Activation::Relu)),
        ("Tanh", _) => Some(Some(Activation::Tanh)),
        ("Sigmoid", _) => Some(Some(Activation::Sigmoid)),
        ("LeakyRelu", Some(slope)) => Some(Some(Activation::LeakyRelu { slope })),
        ("Elu", Some(alpha)) => Some(Some(Activation::Elu { alpha })),
        _ => None,
    }
}

impl Draft<'_> {
    /// The operands of a step that are constants.
    fn constants_of(&self, i: usize) -> Vec<Option<crate::import::value::Value>> {
        let count = self.step(i).map_or(0, |step| step.inputs.len());
        (0..count).map(|operand| self.constant(i, operand).cloned()).collect()
    }

    /// A product with a weight in blocks of few bits. The weight is unpacked once if the floats, and their packed copy,
    /// leave half of the memory free; else it is unpacked in each run.
    pub(super) fn blocks(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        let operands = self.constants_of(i);
        let given = |operand: usize| self.slot(i, operand).is_some();
        let is_known = |operand: usize| !given(operand) || operands[operand].is_some();
        let size = |name: &str| match step.node.attribute(name) {
            Some(Attribute::Int(value)) => usize::try_from(*value).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let bytes = size("N").saturating_mul(size("K")).saturating_mul(size_of::<f32>());
        let refused = given(4) || super::single::flag(&step.node, "weight_prepacked") != Some(0);
        if refused || ![1, 2, 3, 5].into_iter().all(is_known) || !self.limits.has_room(bytes.saturating_mul(2)) {
            return Ok(());
        }
        let weight = with_call(step, &operands, &[], self.device, self.limits, unpacked_weight);
        // What is wrong is told when the node runs.
        let Ok(weight) = weight else { return Ok(()) };
        let bias = match given(5) {
            true => match self.bias(i, 5, &weight)? {
                None => return Ok(()),
                bias => bias,
            },
            false => None,
        };
        if self.limits.add(bytes).is_err() {
            return Ok(());
        }
        let fused = Fused::Linear {
            matrix: false,
            activation: None,
        };
        let x = self.slot(i, 0);
        self.linear(i, x, weight, bias, fused);
        Ok(())
    }

    /// Trees, which are read from the attributes once.
    pub(super) fn trees(&mut self, i: usize) {
        let Some(step) = self.step(i) else { return };
        let forest = with_call(step, &[], &[], self.device, self.limits, Forest::read);
        // What is wrong is told when the node runs.
        let Ok(forest) = forest else { return };
        let inputs = [self.slot(i, 0)];
        self.replace(i, &[], Fused::Forest(forest), &inputs);
    }
}
