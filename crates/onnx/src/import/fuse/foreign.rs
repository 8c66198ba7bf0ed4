//! Preparation of steps from other domains than ONNX's, and of activations that are an attribute of a node.

use polygrad_core::{Activation, Result};

use super::Draft;
use super::action::Fused;
use crate::graph::{Attribute, Node};
use crate::import::ops::{Forest, looked_up_weight, packed_weight};
use crate::import::run::with_call;

/// The activation that a node has as an attribute: `Some(None)` without one, and `None` if only the node's own op can
/// compute it.
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
    /// The operands of a step, each `None` unless it is a constant.
    fn constants_of(&self, i: usize) -> Vec<Option<crate::import::value::Value>> {
        let count = self.step(i).map_or(0, |step| step.inputs.len());
        (0..count).map(|operand| self.constant(i, operand).cloned()).collect()
    }

    /// A product with a weight in blocks of few bits, which stays packed: its parts are reordered once.
    pub(super) fn blocks(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        let operands = self.constants_of(i);
        let given = |operand: usize| self.slot(i, operand).is_some();
        let is_known = |operand: usize| !given(operand) || operands[operand].is_some();
        let refused = given(4) || super::single::flag(&step.node, "weight_prepacked") != Some(0);
        if refused || ![1, 2, 3, 5].into_iter().all(is_known) {
            return Ok(());
        }
        let weight = with_call(step, &operands, &[], self.device, self.limits, packed_weight);
        // The node reports the error when it runs.
        let Ok(([weight, scales, zeros], scheme)) = weight else {
            return Ok(());
        };
        let bias = match given(5) {
            true => match self.bias(i, 5, (weight.shape()[0], scales.dtype()))? {
                None => return Ok(()),
                bias => bias,
            },
            false => None,
        };
        let fused = Fused::Linear {
            matrix: false,
            packed: Some(scheme),
            activation: None,
        };
        let x = self.slot(i, 0);
        let bias = bias.map(|bias| self.add(bias));
        let [weight, scales, zeros] = [weight, scales, zeros].map(|part| Some(self.add(part)));
        self.replace(i, &[], fused, &[x, weight, bias, scales, zeros]);
        Ok(())
    }

    /// A product with a weight of places in a table, which becomes real numbers once.
    pub(super) fn looked_up(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        let operands = self.constants_of(i);
        if ![1, 2]
            .into_iter()
            .all(|operand| operands.get(operand).is_some_and(Option::is_some))
        {
            return Ok(());
        }
        // The node reports the error when it runs.
        let Ok(weight) = with_call(step, &operands, &[], self.device, self.limits, looked_up_weight) else {
            return Ok(());
        };
        let fused = Fused::Linear {
            matrix: false,
            packed: None,
            activation: None,
        };
        self.linear(i, self.slot(i, 0), weight, None, fused);
        Ok(())
    }

    /// Decision trees: they are read from the attributes once.
    pub(super) fn trees(&mut self, i: usize) {
        let Some(step) = self.step(i) else { return };
        let forest = with_call(step, &[], &[], self.device, self.limits, Forest::read);
        // The node reports the error when it runs.
        let Ok(forest) = forest else { return };
        let inputs = [self.slot(i, 0)];
        self.replace(i, &[], Fused::Forest(forest), &inputs);
    }
}
