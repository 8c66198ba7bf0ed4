//! Weights of 8 bits, converted to bytes once.

use std::sync::Arc;

use polygrad_core::{DType, Prepack, Result};
use polygrad_tensor::{Tensor, inference};

use super::Draft;
use super::single::flag;
use crate::graph::{Attribute, ElementType};
use crate::import::ops::{MICROSOFT, whole};
use crate::import::plan::Action;

/// Ops on numbers of 8 bits whose zero points are operands.
const QUANTIZED: [&str; 4] = ["QGemm", "QLinearConv", "QLinearMatMul", "MatMulIntegerToFloat"];

impl Draft<'_> {
    /// Converts a constant i8 weight and its zero point to bytes, adding 128 to both so that they represent the same
    /// numbers, and packs the weight. A right-hand side that the node says is transposed is transposed first.
    pub(super) fn bytes(&mut self, i: usize, weight: usize, zero: usize) -> Result<()> {
        let element = |value: usize| self.constant(i, value).and_then(|value| value.element());
        let (Some(found), zero_type) = (element(weight), element(zero)) else {
            return Ok(());
        };
        let known = self.slot(i, zero).is_none() || zero_type == Some(found);
        if !known || !matches!(found, ElementType::I8 | ElementType::U8) {
            return Ok(());
        }
        let Some(values) = self.tensor(i, weight)? else {
            return Ok(());
        };
        let mut values = whole::bytes(&values, found)?;
        if values.rank() == 2
            && let Some(step) = &mut self.steps[i]
            && flag(&step.node, "transB") == Some(1)
        {
            values = values.t()?;
            let attributes = &mut Arc::make_mut(&mut step.node).attributes;
            attributes
                .iter_mut()
                .filter(|(name, _)| name == "transB")
                .for_each(|(_, value)| *value = Attribute::Int(0));
        }
        if found == ElementType::I8 {
            let zero_point = match self.tensor(i, zero)? {
                Some(zero) => whole::bytes(&zero, found)?,
                None => Tensor::full((), 128, (self.device, DType::U8))?,
            };
            self.give(i, zero, zero_point);
        }
        let node = self.step(i).map(|step| &step.node);
        let kind = match node.map(|node| node.op_type.as_str()) {
            Some("ConvInteger" | "QLinearConv") => Prepack::ConvU8,
            _ => Prepack::MatmulU8,
        };
        self.give(i, weight, inference::prepacked(&values, kind)?);
        Ok(())
    }

    /// Makes lists of one number of single zero points in bytes, and of the scales of conversions, as the backend's
    /// ops take them.
    pub(super) fn lists(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i).filter(|step| matches!(step.action, Action::Op(_))) else {
            return Ok(());
        };
        let op = step.node.op_type.as_str();
        let converts = matches!(op, "QuantizeLinear" | "DequantizeLinear");
        if !matches!(step.node.domain.as_str(), "" | MICROSOFT) || !(converts || QUANTIZED.contains(&op)) {
            return Ok(());
        }
        for operand in 1..step.inputs.len() {
            let element = self.constant(i, operand).and_then(|value| value.element());
            let wanted = element == Some(ElementType::U8) || converts && element == Some(ElementType::F32);
            if wanted
                && let Some(number) = self.tensor(i, operand)?
                && number.rank() == 0
            {
                self.give(i, operand, number.reshape([1])?);
            }
        }
        Ok(())
    }

    /// Replaces an operand by a new constant.
    fn give(&mut self, i: usize, operand: usize, tensor: Tensor) {
        let slot = self.add(tensor);
        if let Some(old) = self.slot(i, operand) {
            let readers = self.readers.entry(old).or_default();
            readers.count -= 1;
            readers.sum -= i;
        }
        let readers = self.readers.entry(slot).or_default();
        readers.count += 1;
        readers.sum += i;
        if let Some(step) = &mut self.steps[i] {
            if step.inputs.len() <= operand {
                step.inputs.resize(operand + 1, None);
            }
            step.inputs[operand] = Some(slot.into());
        }
    }
}
