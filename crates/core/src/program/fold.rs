//! Constant folding: computes once what does not depend on the inputs.

use super::{Action, Program, Slot, Step};
use crate::{AnyBackend, AnyTensor, Backend, Op, Result};

/// Results of more elements are not folded, but recomputed in each run.
const MAX_FOLDED: usize = 1 << 20;

pub(super) fn constants(program: &mut Program) -> Result<()> {
    let mut values: Vec<Option<AnyTensor>> = vec![None; program.types.len()];
    for (slot, tensor) in &program.constants {
        values[slot.index()] = Some(tensor.clone());
    }
    let mut left = Vec::with_capacity(program.steps.len());
    for step in std::mem::take(&mut program.steps) {
        let Some(outputs) = compute(program, &step, &values)? else {
            left.push(step);
            continue;
        };
        if outputs.iter().any(|x| x.shape().numel() > MAX_FOLDED) {
            left.push(step);
            continue;
        }
        for (&slot, tensor) in step.outputs.iter().zip(outputs) {
            program.constants.push((slot, tensor.clone()));
            values[slot.index()] = Some(tensor);
        }
    }
    program.steps = left;
    Ok(())
}

/// The results of a step if all its inputs are constants, else `None`.
fn compute(program: &Program, step: &Step, values: &[Option<AnyTensor>]) -> Result<Option<Vec<AnyTensor>>> {
    let device = &program.device;
    let value = |slot: &Slot| values[slot.index()].as_ref();
    match &step.action {
        Action::Full { shape, value, dtype } => AnyBackend::full(*shape, *value, *dtype, device).map(|x| Some(vec![x])),
        Action::Iota {
            len,
            start,
            step,
            dtype,
        } => AnyBackend::iota(*len, *start, *step, *dtype, device).map(|x| Some(vec![x])),
        Action::Op(Op::AccumulateGrad | Op::SliceScatter { .. }) | Action::Random { .. } | Action::Call(_) => Ok(None),
        Action::Op(op) => {
            let Some(inputs) = step.inputs.iter().map(value).collect::<Option<Vec<&AnyTensor>>>() else {
                return Ok(None);
            };
            let outputs = device.backend().execute(op, &inputs)?;
            Ok(Some(outputs.iter().cloned().collect()))
        }
    }
}
