//! Running a program on the backend's own tensors.

use super::{Action, Program, Replay, Slot, Step};
use crate::dyn_backend::{place, typed};
use crate::{AnyTensor, Backend, Error, Op, Outputs, RandomKey, Result, dispatch};

/// A program with a place for each of its values.
struct Compiled<B: Backend> {
    program: Program,
    values: Vec<Option<B::Tensor>>,
    /// Which of them are constants.
    constant: Vec<bool>,
}

pub(crate) fn compile<B: Backend>(program: Program) -> Result<Box<dyn Replay>> {
    place::<B>(&program.device)?;
    let mut values: Vec<Option<B::Tensor>> = vec![None; program.values];
    for (slot, tensor) in &program.constants {
        values[slot.index()] = Some(typed::<B>(tensor)?.clone());
    }
    let constant = values.iter().map(Option::is_some).collect();
    Ok(Box::new(Compiled::<B> {
        program,
        values,
        constant,
    }))
}

impl<B: Backend> Replay for Compiled<B> {
    fn run(&mut self, inputs: &[AnyTensor], key: &mut dyn FnMut(usize) -> RandomKey) -> Result<Vec<AnyTensor>> {
        if inputs.len() != self.program.inputs {
            let (wanted, given) = (self.program.inputs, inputs.len());
            return Err(Error::invalid(format!(
                "a program of {wanted} inputs was given {given}"
            )));
        }
        let results = self.steps(inputs, key);
        self.forget();
        results
    }
}

impl<B: Backend> Compiled<B> {
    fn steps(&mut self, inputs: &[AnyTensor], key: &mut dyn FnMut(usize) -> RandomKey) -> Result<Vec<AnyTensor>> {
        let Self { program, values, .. } = self;
        for (value, input) in values.iter_mut().zip(inputs) {
            *value = Some(typed::<B>(input)?.clone());
        }
        let device = place::<B>(&program.device)?;
        for step in &program.steps {
            let mut outputs = compute::<B>(step, values, device, key).map_err(|e| explain::<B>(e, step, values))?;
            for (i, slot) in step.outputs.iter().enumerate() {
                values[slot.index()] = Some(outputs.take(i)?);
            }
            for slot in &step.last {
                values[slot.index()] = None;
            }
        }
        let result = |slot: &Slot| values[slot.index()].clone().ok_or_else(missing);
        program
            .outputs
            .iter()
            .map(|slot| result(slot).map(AnyTensor::new::<B>))
            .collect()
    }

    /// Keeps the constants alone, whether the steps went well or not: inputs are often parameters, which are changed in place where nobody
    /// else holds them.
    fn forget(&mut self) {
        for (value, &constant) in self.values.iter_mut().zip(&self.constant) {
            if !constant {
                *value = None;
            }
        }
    }
}

#[inline]
fn compute<B: Backend>(
    step: &Step,
    values: &mut [Option<B::Tensor>],
    device: &B::Device,
    key: &mut dyn FnMut(usize) -> RandomKey,
) -> Result<Outputs<B::Tensor>> {
    match &step.action {
        Action::Op(Op::AccumulateGrad) => {
            let (into, grad) = (step.inputs[0], step.inputs[1]);
            // Taken out, where this is its last use, so that the backend may add in place.
            let sum = if step.last.contains(&into) && into != grad {
                values[into.index()].take()
            } else {
                values[into.index()].clone()
            };
            let grad = values[grad.index()].as_ref().ok_or_else(missing)?;
            B::accumulate_grad(sum.ok_or_else(missing)?, grad).map(Outputs::one)
        }
        Action::Op(op) => {
            let input = |i: usize| values[step.inputs[i].index()].as_ref().ok_or_else(missing);
            dispatch::call::<B, _>(op, step.inputs.len(), input, |x| x)
        }
        Action::Full { shape, value, dtype } => B::full(*shape, *value, *dtype, device).map(Outputs::one),
        Action::Iota {
            len,
            start,
            step,
            dtype,
        } => B::iota(*len, *start, *step, *dtype, device).map(Outputs::one),
        Action::Random {
            shape,
            distribution,
            dtype,
        } => B::random(*shape, *distribution, *dtype, key(shape.numel()), device).map(Outputs::one),
    }
}

#[cold]
fn explain<B: Backend>(error: Error, step: &Step, values: &[Option<B::Tensor>]) -> Error {
    let operands = step.inputs.iter().filter_map(|slot| values[slot.index()].as_ref());
    error
        .with_op(step.action.name())
        .with_operands(operands.map(|x| (B::shape(x), B::dtype(x))))
}

#[cold]
fn missing() -> Error {
    Error::invalid("a recorded program asks for a value that it has not computed")
}
