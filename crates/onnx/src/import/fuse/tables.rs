//! Functions of a byte: steps whose result depends on one tensor of bytes, element by element, are a table of 256
//! results, which is computed when the model is loaded.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use polygrad_core::{DType, Result};
use polygrad_tensor::Tensor;

use super::Draft;
use super::action::Fused;
use crate::graph::{ElementType, Node};
use crate::import::ops::MICROSOFT;
use crate::import::plan::Action;
use crate::import::run::call_step;
use crate::import::value::Value;

/// Functions of each element of operand 0, if their other operands are single numbers.
const UNARY: [&str; 26] = [
    "Abs",
    "Ceil",
    "Celu",
    "Clip",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tanh",
    "ThresholdedRelu",
];

/// Functions of each pair of elements.
const BINARY: [&str; 7] = ["Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"];

/// What an element-wise op reads.
struct Reads {
    /// The operands that its result follows, element by element.
    values: &'static [usize],
    /// Whether they may be bytes: they are followed by scale and zero point.
    bytes: bool,
}

impl Reads {
    fn of(node: &Node) -> Option<Self> {
        let (values, bytes): (&[usize], bool) = match (node.domain.as_str(), node.op_type.as_str()) {
            ("" | MICROSOFT, "DequantizeLinear") | (MICROSOFT, "QLinearSigmoid" | "QLinearLeakyRelu") => (&[0], true),
            (MICROSOFT, "QLinearAdd" | "QLinearMul") => (&[0, 3], true),
            ("" | MICROSOFT, "QuantizeLinear") | (MICROSOFT, "Gelu" | "QuickGelu") => (&[0], false),
            ("", op) if UNARY.contains(&op) => (&[0], false),
            ("", op) if BINARY.contains(&op) && node.inputs.len() == 2 => (&[0, 1], false),
            _ => return None,
        };
        Some(Self { values, bytes })
    }
}

impl Draft<'_> {
    /// Replaces steps by tables. The last step of a function comes first, so that its table takes all of it.
    pub(super) fn tables(&mut self) -> Result<()> {
        let sources = self.sources();
        for last in (0..self.steps.len()).rev() {
            self.table(last, &sources)?;
        }
        Ok(())
    }

    /// For each result of element-wise steps the bytes that it is a function of, if these are of one tensor.
    fn sources(&self) -> HashMap<usize, usize> {
        let (mut sources, mut rounding) = (HashMap::new(), HashSet::new());
        for i in 0..self.steps.len() {
            if self.rounds(i) {
                rounding.extend(self.step(i).and_then(|step| step.outputs[0]));
            }
            if let (Some(source), Some(&[Some(output)])) = (
                self.source(i, &sources, &rounding),
                self.step(i).map(|step| step.outputs.as_slice()),
            ) {
                sources.insert(output, source);
            }
        }
        sources
    }

    /// Whether a step quantizes numbers only for the DequantizeLinear behind it. Gradients pass both.
    fn rounds(&self, i: usize) -> bool {
        let is = |i: usize, op: &str| self.step(i).is_some_and(|step| step.node.op_type == op);
        is(i, "QuantizeLinear") && self.sole_reader(i).is_some_and(|next| is(next, "DequantizeLinear"))
    }

    fn source(&self, i: usize, sources: &HashMap<usize, usize>, rounding: &HashSet<usize>) -> Option<usize> {
        let step = self.step(i).filter(|step| matches!(step.action, Action::Op(_)))?;
        let reads = Reads::of(&step.node)?;
        let mut found = None;
        for (operand, slot) in step.inputs.iter().enumerate() {
            let Some(slot) = slot.map(|slot| slot.slot) else {
                continue;
            };
            let is_value = reads.values.contains(&operand);
            if let Some(value) = self.constants.get(&slot) {
                // A list of one number would give a scalar an axis.
                let rank = if is_value { 0 } else { 1 };
                let single = value
                    .shape()
                    .is_some_and(|shape| shape.numel() == 1 && shape.rank() <= rank);
                if !single || value.is_tracked() {
                    return None;
                }
                continue;
            }
            if !is_value {
                return None;
            }
            let zero = || self.constant(i, operand + 2).and_then(Value::element);
            let source = match sources.get(&slot) {
                Some(source) => *source,
                None if reads.bytes && zero() == Some(ElementType::U8) && !rounding.contains(&slot) => slot,
                None => return None,
            };
            if *found.get_or_insert(source) != source {
                return None;
            }
        }
        found
    }

    fn table(&mut self, last: usize, sources: &HashMap<usize, usize>) -> Result<()> {
        let Some(&[Some(output)]) = self.step(last).map(|step| step.outputs.as_slice()) else {
            return Ok(());
        };
        let Some(&source) = sources.get(&output) else {
            return Ok(());
        };
        let mut steps = BTreeSet::new();
        self.gather(last, source, &mut steps);
        let plain = |node: &Node| matches!(node.op_type.as_str(), "DequantizeLinear" | "QuantizeLinear");
        if steps.len() == 1 && self.step(last).is_none_or(|step| plain(&step.node)) {
            return Ok(());
        }
        let Some(table) = self.tabulated(&steps, source, output)? else {
            return Ok(());
        };
        let names = steps
            .iter()
            .filter_map(|&i| self.step(i))
            .map(|step| step.node.op_type.as_str());
        let name = names.collect::<Vec<_>>().join("+");
        let before: Vec<usize> = self.step(last).into_iter().flat_map(|step| step.reads()).collect();
        let table = self.add(table);
        self.replace(last, &[], Fused::Table, &[Some(source), Some(table)]);
        before.into_iter().for_each(|slot| self.release(slot));
        if let Some(step) = &mut self.steps[last] {
            Arc::make_mut(&mut step.node).op_type = name;
        }
        Ok(())
    }

    /// Adds a step and those from the bytes to it.
    fn gather(&self, i: usize, source: usize, steps: &mut BTreeSet<usize>) {
        let mut waiting = vec![i];
        while let Some(i) = waiting.pop() {
            if steps.insert(i) {
                let reads = self.step(i).into_iter().flat_map(|step| step.reads());
                let inner = reads.filter(|slot| *slot != source && !self.constants.contains_key(slot));
                waiting.extend(inner.filter_map(|slot| self.maker(slot)));
            }
        }
    }

    /// What the steps make of each byte, if that is a byte or an f32.
    fn tabulated(&self, steps: &BTreeSet<usize>, source: usize, output: usize) -> Result<Option<Tensor>> {
        let Ok(all) = Tensor::from_vec((0..=255u8).collect(), [256], self.device) else {
            return Ok(None);
        };
        let mut values = HashMap::from([(source, Value::from(all))]);
        for &i in steps {
            let Some(step) = self.step(i) else { return Ok(None) };
            let value = |slot: usize| self.constants.get(&slot).or_else(|| values.get(&slot)).cloned();
            let operands: Option<Vec<Option<Value>>> = step
                .inputs
                .iter()
                .map(|operand| operand.map_or(Some(None), |operand| value(operand.slot).map(Some)))
                .collect();
            // The node reports the error when it runs.
            let made = operands.map(|operands| call_step(step, &operands, &[], self.device, self.limits));
            let Some(Ok(made)) = made else { return Ok(None) };
            if let (Some(&Some(slot)), Some(value)) = (step.outputs.first(), made.into_iter().next()) {
                values.insert(slot, value);
            }
        }
        let Some(value) = values.remove(&output) else {
            return Ok(None);
        };
        let known = matches!(value.element(), Some(ElementType::U8 | ElementType::F32));
        let fits = known && value.shape().is_some_and(|shape| shape.dims() == [256]);
        let table = value
            .tensor(self.device)
            .ok()
            .filter(|table| fits && !table.is_tracked());
        Ok(table.filter(|table| matches!(table.dtype(), DType::U8 | DType::F32)))
    }
}
