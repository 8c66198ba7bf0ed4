//! Recognizes attention in the nodes that spell it out: a product of queries and keys, a factor, a mask, a softmax, the
//! product with the values.
//!
//! A query that sees no key has weights that are NaN. PyTorch's exporter replaces NaN by 0 behind the softmax, ours the
//! result of such queries; both are part of the fused op, which gives them 0.

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
    /// The same, and the result is 0 for a query for which all of the mask is false along this axis of it.
    Sight(i64),
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
        gone.push(softmax);
        let (weights, safe) = match self.without_nan(softmax)? {
            None => (softmax, false),
            Some([test, choice]) => {
                gone.extend([test, choice]);
                (choice, true)
            }
        };
        let Some(last) = self
            .sole_reader(weights)
            .filter(|&last| self.op(last) == Some("MatMul"))
        else {
            return Ok(());
        };
        // The attention weights must be the left operand.
        let (1, Some(v)) = (self.other(weights, last), self.slot(last, 1)) else {
            return Ok(());
        };
        let sight = match masking {
            Masking::Choice => self.sight(last, mask)?,
            _ => None,
        };
        let (end, masking) = match sight {
            None => (last, masking),
            Some((choice, axis)) => {
                gone.push(last);
                (choice, Masking::Sight(axis))
            }
        };
        let seen = self.slot(end, 0);
        let fused = Fused::Attention {
            scale,
            axis,
            masking,
            safe,
        };
        self.replace(end, &gone, fused, &[q, k, Some(v), mask]);
        if let (Masking::Sight(_), Some(seen)) = (masking, seen) {
            self.release(seen);
        }
        Ok(())
    }

    /// The IsNaN and the Where that replace NaN in the result of a step by 0.
    fn without_nan(&self, i: usize) -> Result<Option<[usize; 2]>> {
        let Some(result) = self.step(i).and_then(|step| step.outputs[0]) else {
            return Ok(None);
        };
        let readers = self.readers.get(&result).filter(|readers| readers.count == 2);
        let test = (i + 1..self.steps.len()).find(|&j| self.op(j) == Some("IsNaN") && self.slot(j, 0) == Some(result));
        let (Some(readers), Some(test)) = (readers, test) else {
            return Ok(None);
        };
        let choice = readers.sum - test;
        let chooses = self.op(choice) == Some("Where")
            && self.sole_reader(test) == Some(choice)
            && !self.kept.contains(&result)
            && self.slot(choice, 2) == Some(result);
        let fits = chooses && self.other(test, choice) == 1 && self.number(choice, 1)? == Some(0.0);
        Ok(fits.then_some([test, choice]))
    }

    /// The Where that follows and gives 0 to queries that see no key, and the axis of the mask along which it counts
    /// keys, as our exporter writes them. `None` if there is no such node.
    fn sight(&self, last: usize, mask: Option<usize>) -> Result<Option<(usize, i64)>> {
        let maker = |slot: Option<usize>, op: &str| self.maker(slot?).filter(|&i| self.op(i) == Some(op));
        let Some(choice) = self.sole_reader(last).filter(|&next| self.op(next) == Some("Where")) else {
            return Ok(None);
        };
        let count = maker(self.slot(choice, 0), "Cast").and_then(|to| maker(self.slot(to, 0), "ReduceSum"));
        let Some(count) = count else { return Ok(None) };
        let counted = maker(self.slot(count, 0), "Cast").filter(|&from| mask.is_some() && self.slot(from, 0) == mask);
        let result = self.step(last).and_then(|step| step.outputs[0]);
        let keeps = |i: usize| {
            let node = self.step(i).map(|step| &step.node);
            node.is_some_and(|node| matches!(node.attribute("keepdims"), None | Some(Attribute::Int(1))))
        };
        if counted.is_none() || self.slot(choice, 1) != result || !keeps(count) {
            return Ok(None);
        }
        let (Some(0.0), Some(axes)) = (self.number(choice, 2)?, self.tensor(count, 1)?) else {
            return Ok(None);
        };
        match *axes.to_host()?.to_vec::<i64>()? {
            [axis] => Ok(Some((choice, axis))),
            _ => Ok(None),
        }
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
    pub(super) fn number(&self, i: usize, operand: usize) -> Result<Option<f64>> {
        let Some(tensor) = self.tensor(i, operand)? else {
            return Ok(None);
        };
        if tensor.numel() != 1 || tensor.rank() > 1 || !tensor.dtype().is_float() {
            return Ok(None);
        }
        Ok(Some(tensor.to_host()?.to_f64_vec()[0]))
    }
}
