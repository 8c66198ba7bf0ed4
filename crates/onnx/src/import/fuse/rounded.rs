//! QuantizeLinear whose result only goes back through DequantizeLinear: rounding of floats, in one op.

use polygrad_core::{DType, Result};
use polygrad_tensor::Tensor;

use super::Draft;
use super::action::Fused;
use crate::import::ops::MICROSOFT;
use crate::import::plan::Action;

impl Draft<'_> {
    /// Fuses this QuantizeLinear with the DequantizeLinear that follows, if both have the same single scale and zero
    /// point.
    pub(super) fn rounded(&mut self, i: usize) -> Result<()> {
        let Some(next) = self.sole_reader(i) else { return Ok(()) };
        let pair = self.converts(i, "QuantizeLinear") && self.converts(next, "DequantizeLinear");
        let same = [1, 2].iter().all(|&k| self.slot(i, k) == self.slot(next, k));
        let (true, true, Some(x)) = (pair, same, self.slot(i, 0)) else {
            return Ok(());
        };
        let range = self.constant(i, 2).and_then(|zero| zero.element());
        let range = range
            .filter(|element| element.bits() <= 16)
            .and_then(|element| element.range());
        let (Some((low, high)), Some(scale), Some(zero)) = (range, self.tensor(i, 1)?, self.tensor(i, 2)?) else {
            return Ok(());
        };
        if scale.dtype() != DType::F32 || scale.numel() != 1 || scale.rank() > 1 || zero.numel() != 1 {
            return Ok(());
        }
        let list = |number: &Tensor| number.reshape([1])?.to_dtype(DType::F32);
        let (scale, zero) = (list(&scale)?, list(&zero)?);
        let inputs = [x, self.add(scale), self.add(zero)].map(Some);
        let bounds = [low as i32, high as i32];
        self.replace(next, &[i], Fused::Rounded { bounds }, &inputs);
        Ok(())
    }

    /// Whether a step is this op, with the usual types and one scale for all numbers, if that has one element.
    fn converts(&self, i: usize, op_type: &str) -> bool {
        self.step(i).is_some_and(|step| {
            let node = &step.node;
            matches!(step.action, Action::Op(_))
                && node.op_type == op_type
                && matches!(node.domain.as_str(), "" | MICROSOFT)
                && node.attributes.iter().all(|(name, _)| name == "axis")
        })
    }
}
