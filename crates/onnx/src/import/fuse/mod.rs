//! Fusion of several ops into one when a model is loaded.
//!
//! A value between two steps may only be removed if the later step is its only reader, reads it once, and the value is
//! no output of the body. Trained parameters are left alone, and fused ops pass on gradients if an operand turns out to
//! be tracked at run time.

mod action;
mod attention;
mod byte_lstm;
mod bytes;
mod foreign;
mod images;
mod merge;
mod rounded;
mod single;
mod tables;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polygrad_core::Result;
use polygrad_tensor::{Device, Tensor};

use super::limits::Limits;
use super::plan::{Action, Step};
use super::value::Value;

pub(crate) use action::Fused;

/// The constants of a body by slot.
pub(super) type Constants = HashMap<usize, Value>;

/// A list of steps during fusion.
pub(super) struct Draft<'a> {
    steps: Vec<Option<Step>>,
    constants: Constants,
    slots: usize,
    /// Outputs, and values captured by bodies of nodes: they must not be removed.
    kept: HashSet<usize>,
    readers: HashMap<usize, Readers>,
    device: &'a Device,
    limits: &'a Limits,
}

/// The readers of a value: their count, and the sum of their indices, which is the index of the only reader if there is
/// one.
#[derive(Default)]
struct Readers {
    count: usize,
    sum: usize,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        steps: Vec<Step>,
        constants: Constants,
        slots: usize,
        outputs: &[usize],
        device: &'a Device,
        limits: &'a Limits,
    ) -> Self {
        let captured = steps.iter().flat_map(|step| step.captures.iter().flatten());
        let mut readers: HashMap<usize, Readers> = HashMap::new();
        for (i, step) in steps.iter().enumerate() {
            for slot in step.reads() {
                let readers = readers.entry(slot).or_default();
                readers.count += 1;
                readers.sum += i;
            }
        }
        Self {
            kept: captured.chain(outputs).copied().collect(),
            steps: steps.into_iter().map(Some).collect(),
            constants,
            slots,
            readers,
            device,
            limits,
        }
    }

    /// Returns the steps, the constants, and the number of slots.
    pub(super) fn fuse(mut self) -> Result<(Vec<Step>, Constants, usize)> {
        self.tables()?;
        for i in 0..self.steps.len() {
            self.rounded(i)?;
            self.single(i)?;
            self.lists(i)?;
        }
        for i in 0..self.steps.len() {
            let mut at = i;
            while let Some(next) = self.merge(at)? {
                at = next;
            }
        }
        for i in 0..self.steps.len() {
            self.attention(i)?;
        }
        self.prepack()?;
        Ok((self.steps.into_iter().flatten().collect(), self.constants, self.slots))
    }

    fn step(&self, i: usize) -> Option<&Step> {
        self.steps[i].as_ref()
    }

    /// The fused op of a step, if it is fused already.
    fn fused(&self, i: usize) -> Option<&Fused> {
        match &self.step(i)?.action {
            Action::Fused(fused) => Some(fused),
            Action::Op(_) => None,
        }
    }

    /// The only step that reads the only result of a step, if it reads it once.
    fn sole_reader(&self, i: usize) -> Option<usize> {
        let &[Some(slot)] = self.step(i)?.outputs.as_slice() else {
            return None;
        };
        if self.kept.contains(&slot) {
            return None;
        }
        match self.readers.get(&slot) {
            Some(Readers { count: 1, sum }) => Some(*sum),
            _ => None,
        }
    }

    /// The slot of an operand.
    fn slot(&self, i: usize, operand: usize) -> Option<usize> {
        self.step(i)?.inputs.get(operand)?.map(|operand| operand.slot)
    }

    /// The value of an operand, if it is a constant that is not trained.
    fn constant(&self, i: usize, operand: usize) -> Option<&Value> {
        let value = self.constants.get(&self.slot(i, operand)?)?;
        (!value.is_tracked()).then_some(value)
    }

    /// [`Draft::constant`] as a tensor on the device.
    fn tensor(&self, i: usize, operand: usize) -> Result<Option<Tensor>> {
        self.constant(i, operand)
            .filter(|value| value.as_sequence().is_none() && !value.is_absent())
            .map(|value| value.tensor(self.device))
            .transpose()
    }

    /// The step that makes a value, if it makes no other.
    fn maker(&self, slot: usize) -> Option<usize> {
        let makes = |step: &Option<Step>| step.as_ref().is_some_and(|step| step.outputs[..] == [Some(slot)]);
        self.steps.iter().position(makes)
    }

    /// Removes the step that makes a value that is not read any more, and then those that only made its operands.
    fn release(&mut self, slot: usize) {
        let mut slots = vec![slot];
        while let Some(slot) = slots.pop() {
            let is_read = self.readers.get(&slot).is_some_and(|readers| readers.count > 0);
            let unread = self.maker(slot).filter(|_| !is_read && !self.kept.contains(&slot));
            let Some((i, step)) = unread.and_then(|i| Some((i, self.steps[i].take()?))) else {
                continue;
            };
            for slot in step.reads() {
                let readers = self.readers.entry(slot).or_default();
                readers.count -= 1;
                readers.sum -= i;
                slots.push(slot);
            }
        }
    }

    /// Adds a constant and returns its slot.
    fn add(&mut self, tensor: Tensor) -> usize {
        self.constants.insert(self.slots, tensor.into());
        self.slots += 1;
        self.slots - 1
    }

    /// Replaces step `at` by a fused op that reads `inputs`, and removes the steps `gone`. The first of them gives the
    /// new step its name.
    fn replace(&mut self, at: usize, gone: &[usize], fused: Fused, inputs: &[Option<usize>]) {
        for &i in gone.iter().chain(&[at]) {
            for slot in self.steps[i].iter().flat_map(Step::reads) {
                let readers = self.readers.entry(slot).or_default();
                readers.count -= 1;
                readers.sum -= i;
            }
        }
        for &slot in inputs.iter().flatten() {
            let readers = self.readers.entry(slot).or_default();
            readers.count += 1;
            readers.sum += at;
        }
        let before: Vec<Step> = gone.iter().filter_map(|&i| self.steps[i].take()).collect();
        let Some(step) = &mut self.steps[at] else { return };
        if let Some(first) = before.first() {
            // Errors name all fused ops.
            let mut node = (*first.node).clone();
            let ops = before.iter().chain([&*step]).map(|step| step.node.op_type.as_str());
            node.op_type = ops.collect::<Vec<_>>().join("+");
            node.outputs.clone_from(&step.node.outputs);
            step.node = Arc::new(node);
        }
        step.action = Action::Fused(Box::new(fused));
        step.inputs = inputs.iter().map(|slot| slot.map(Into::into)).collect();
    }
}
