//! Recognizes attention in the nodes that spell it out: a product of queries and keys, a factor, a mask, a softmax, and
//! the product with the values.

use polygrad_core::Result;

use super::Draft;
use super::action::Fused;
use crate::graph::Attribute;
use crate::import::plan::{Action, Step};

/// How a mask is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Masking {
    None,
    /// The score is −∞ where the mask is false.
    Choice,
    /// The mask is added to the scores.
    Sum,
}

impl Draft<'_> {
    /// Fuses the chain of nodes that begins at this product, if it is attention.
    pub(super) fn attention(&mut self, i: usize) -> Result<()> {
        let (Some("MatMul"), Some(q), Some(k)) = (self.op(i), self.slot(i, 0), self.slot(i, 1)) else {
            return Ok(());
        };
        let (mut gone, mut at, mut scale) = (vec![i], i, 1.0);
        let (mut masking, mut mask) = (Masking::None, None);
        // An optional factor, an optional mask, a softmax, and then the product.
        loop {
            let Some(next) = self.sole_reader(at) else {
                return Ok(());
            };
            let other = self.other(at, next);
            match self.op(next) {
                Some(op @ ("Mul" | "Div")) if masking == Masking::None && scale == 1.0 => {
                    match self.number(next, other)? {
                        Some(factor) if op == "Mul" => scale = factor,
                        Some(divisor) if op == "Div" && other == 1 => scale = 1.0 / divisor,
                        _ => return Ok(()),
                    }
                }
                Some("Where") if masking == Masking::None => {
                    let result = self.step(at).and_then(|step| step.outputs[0]);
                    if self.slot(next, 1) != result || self.number(next, 2)? != Some(f64::NEG_INFINITY) {
                        return Ok(());
                    }
                    (masking, mask) = (Masking::Choice, self.slot(next, 0));
                }
                Some("Add") if masking == Masking::None => {
                    (masking, mask) = (Masking::Sum, self.slot(next, other));
                }
                Some("Softmax") => return self.end_of_attention(next, gone, [Some(q), Some(k), mask], scale, masking),
                _ => return Ok(()),
            }
            gone.push(next);
            at = next;
        }
    }

    fn end_of_attention(
        &mut self,
        softmax: usize,
        mut gone: Vec<usize>,
        [q, k, mask]: [Option<usize>; 3],
        scale: f64,
        masking: Masking,
    ) -> Result<()> {
        let Some(step) = self.step(softmax).filter(|step| step.version >= 13) else {
            return Ok(());
        };
        let axis = match step.node.attribute("axis") {
            None => -1,
            Some(Attribute::Int(axis)) => *axis,
            Some(_) => return Ok(()),
        };
        let Some(last) = self
            .sole_reader(softmax)
            .filter(|&last| self.op(last) == Some("MatMul"))
        else {
            return Ok(());
        };
        // The attention weights must be the left operand.
        let (1, Some(v)) = (self.other(softmax, last), self.slot(last, 1)) else {
            return Ok(());
        };
        gone.push(softmax);
        let fused = Fused::Attention { scale, axis, masking };
        self.replace(last, &gone, fused, &[q, k, Some(v), mask]);
        Ok(())
    }

    /// The op of a step that is not fused yet.
    fn op(&self, i: usize) -> Option<&str> {
        match self.step(i)? {
            Step {
                action: Action::Op(_),
                node,
                ..
            } if node.domain.is_empty() => Some(&node.op_type),
            _ => None,
        }
    }

    /// The value of an operand that is a constant number.
    fn number(&self, i: usize, operand: usize) -> Result<Option<f64>> {
        let Some(tensor) = self.tensor(i, operand)? else {
            return Ok(None);
        };
        if tensor.numel() != 1 || tensor.rank() > 1 || !tensor.dtype().is_float() {
            return Ok(None);
        }
        Ok(Some(tensor.to_host()?.to_f64_vec()[0]))
    }
}
