//! Runs a program on the backend's own tensors.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Action, Call, Program, Replay, Slot, Step};
use crate::dyn_backend::{place, typed};
use crate::timing::{self, timed};
use crate::{AnyTensor, Backend, DType, DeviceGraph, Error, Op, Outputs, RandomKey, Result, Shape, dispatch};

/// A program with its constants as the backend's tensors.
struct Compiled<B: Backend> {
    program: Program,
    constants: Vec<(Slot, B::Tensor)>,
    /// Inputs and outputs that are not constants. They may remain in a workspace after the last step.
    passing: Vec<Slot>,
    /// Workspaces kept for later runs: at most as many as there were runs at the same time.
    workspaces: Mutex<Vec<Workspace<B>>>,
    /// `Some` if the device can record this program.
    graph: Option<Graph<B>>,
}

/// A place for each value of a program. Between runs it holds only the constants.
type Workspace<B> = Vec<Option<<B as Backend>::Tensor>>;

/// The program as the device's own recording, once it has been run often enough.
struct Graph<B: Backend> {
    runs: AtomicU32,
    /// `None` inside if the device cannot record it, or recording gains nothing.
    recorded: OnceLock<Option<Box<dyn DeviceGraph<B::Tensor>>>>,
}

/// The number of runs before a program is recorded. A recording takes the time of several runs, and memory of its own.
const FEW_RUNS: u32 = 2;

pub(crate) fn compile<B: Backend>(program: Program) -> Result<Box<dyn Replay>> {
    let device = place::<B>(&program.device)?;
    let constants = program
        .constants
        .iter()
        .map(|(slot, tensor)| Ok((*slot, typed::<B>(tensor)?.clone())));
    let constants: Vec<(Slot, B::Tensor)> = constants.collect::<Result<_>>()?;
    let inputs = (0..program.inputs as u32).map(Slot);
    let passing = inputs.chain(program.outputs.iter().copied());
    let calls = |step: &Step| matches!(step.action, Action::Call(_));
    let records = B::capabilities(device).graphs && !program.steps.iter().any(calls);
    Ok(Box::new(Compiled::<B> {
        passing: passing
            .filter(|slot| constants.iter().all(|(constant, _)| constant != slot))
            .collect(),
        constants,
        workspaces: Mutex::default(),
        graph: records.then(|| Graph {
            runs: AtomicU32::new(0),
            recorded: OnceLock::new(),
        }),
        program,
    }))
}

impl<B: Backend> Replay for Compiled<B> {
    fn run(&self, inputs: &[AnyTensor], key: &mut dyn FnMut(usize) -> RandomKey) -> Result<Vec<AnyTensor>> {
        self.check(inputs)?;
        let device = place::<B>(&self.program.device)?;
        let mut random = |action: &Action| match action {
            Action::Random {
                shape,
                distribution,
                dtype,
            } => B::random(*shape, *distribution, *dtype, key(shape.numel()), device),
            _ => unreachable!("only draws are drawn"),
        };
        let inputs = inputs.iter().map(|input| typed::<B>(input).cloned());
        let outputs = match &self.graph {
            None => self.run_steps(inputs, &mut random)?,
            Some(graph) => {
                let mut inputs: Vec<B::Tensor> = inputs.collect::<Result<_>>()?;
                // A recording would draw the same numbers each time.
                for step in &self.program.steps {
                    if let Action::Random { .. } = step.action {
                        inputs.push(random(&step.action)?);
                    }
                }
                match self.recorded(graph, device, &inputs) {
                    Some(recorded) => timed(
                        ("graph", true),
                        || types::<B>(inputs.iter()),
                        || recorded.run(&inputs),
                        |outputs| types::<B>(outputs.iter()),
                        || B::synchronize(device),
                    )?,
                    None => self.run_drawn(&inputs)?,
                }
            }
        };
        Ok(outputs.into_iter().map(AnyTensor::new::<B>).collect())
    }
}

impl<B: Backend> Compiled<B> {
    /// The device's recording, if there is one. Makes it in the run after [`FEW_RUNS`].
    fn recorded<'a>(
        &self,
        graph: &'a Graph<B>,
        device: &B::Device,
        inputs: &[B::Tensor],
    ) -> Option<&'a dyn DeviceGraph<B::Tensor>> {
        if let Some(recorded) = graph.recorded.get() {
            return recorded.as_deref();
        }
        if graph.runs.fetch_add(1, Ordering::Relaxed) != FEW_RUNS {
            return None;
        }
        // An error means that the program cannot be recorded, or it happens again in the normal run that follows, which
        // reports it.
        let new = timing::paused(|| B::graph(device, inputs, &mut |inputs| self.run_drawn(inputs)));
        let new = new.ok().flatten();
        graph.recorded.get_or_init(|| new).as_deref()
    }

    /// Runs the steps. `inputs` are the program's inputs, followed by the drawn random numbers.
    fn run_drawn(&self, inputs: &[B::Tensor]) -> Result<Vec<B::Tensor>> {
        let (inputs, drawn) = inputs.split_at(self.program.inputs);
        let mut drawn = drawn.iter();
        let inputs = inputs.iter().map(|input| Ok(input.clone()));
        self.run_steps(inputs, &mut |_| drawn.next().cloned().ok_or_else(missing))
    }

    fn run_steps(
        &self,
        inputs: impl Iterator<Item = Result<B::Tensor>>,
        random: &mut dyn FnMut(&Action) -> Result<B::Tensor>,
    ) -> Result<Vec<B::Tensor>> {
        let kept = self.workspaces().pop();
        let mut workspace = kept.unwrap_or_else(|| self.workspace());
        let results = self.steps(inputs, &mut workspace, random);
        // Done whether or not the steps succeeded: inputs are often parameters, which are updated in place only if
        // nothing else holds them.
        self.forget(&mut workspace, results.is_ok());
        self.workspaces().push(workspace);
        results
    }

    fn check(&self, inputs: &[AnyTensor]) -> Result<()> {
        if inputs.len() != self.program.inputs {
            let (wanted, given) = (self.program.inputs, inputs.len());
            return Err(Error::invalid(format!(
                "a program of {wanted} inputs was given {given}"
            )));
        }
        for (i, (input, wanted)) in inputs.iter().zip(&self.program.types).enumerate() {
            if (input.shape(), input.dtype()) != *wanted {
                return Err(unexpected(i, input, wanted));
            }
        }
        Ok(())
    }

    fn workspaces(&self) -> MutexGuard<'_, Vec<Workspace<B>>> {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workspace(&self) -> Workspace<B> {
        let mut workspace = vec![None; self.program.types.len()];
        for (slot, tensor) in &self.constants {
            workspace[slot.index()] = Some(tensor.clone());
        }
        workspace
    }

    fn steps(
        &self,
        inputs: impl Iterator<Item = Result<B::Tensor>>,
        values: &mut Workspace<B>,
        random: &mut dyn FnMut(&Action) -> Result<B::Tensor>,
    ) -> Result<Vec<B::Tensor>> {
        let program = &self.program;
        for (value, input) in values.iter_mut().zip(inputs) {
            *value = Some(input?);
        }
        let device = place::<B>(&program.device)?;
        for step in &program.steps {
            if let Action::Call(call) = &step.action {
                let operands = operands::<B>(step, values);
                let run = timed(
                    (step.action.name(), true),
                    || operands,
                    || run_call::<B>(&*call.0, step, values),
                    |()| Vec::new(),
                    || B::synchronize(device),
                );
                run.map_err(|e| explain::<B>(e, step, values))?;
                for slot in &step.last {
                    values[slot.index()] = None;
                }
                continue;
            }
            let outputs = match timing::is_on() {
                false => compute::<B>(step, values, device, random),
                true => timed_compute::<B>(step, values, device, random),
            };
            let mut outputs = outputs.map_err(|e| explain::<B>(e, step, values))?;
            for (i, slot) in step.outputs.iter().enumerate() {
                values[slot.index()] = Some(outputs.take(i)?);
            }
            for slot in &step.last {
                values[slot.index()] = None;
            }
        }
        let mut results = Vec::with_capacity(program.outputs.len());
        for slot in &program.outputs {
            results.push(values[slot.index()].clone().ok_or_else(missing)?);
        }
        Ok(results)
    }

    /// Clears all values except the constants.
    fn forget(&self, values: &mut Workspace<B>, all_ran: bool) {
        if !all_ran {
            *values = self.workspace();
            return;
        }
        // All other values were dropped at their last use.
        for slot in &self.passing {
            values[slot.index()] = None;
        }
    }
}

/// Runs a call, and stores its results.
fn run_call<B: Backend>(call: &dyn Call, step: &Step, values: &mut Workspace<B>) -> Result<()> {
    let input = |slot: &Slot| {
        values[slot.index()]
            .clone()
            .map(AnyTensor::new::<B>)
            .ok_or_else(missing)
    };
    let outputs = call.run(&step.inputs.iter().map(input).collect::<Result<Vec<_>>>()?)?;
    if outputs.len() != step.outputs.len() {
        let (found, wanted) = (outputs.len(), step.outputs.len());
        return Err(Error::invalid(format!(
            "it gave {found} results, and {wanted} when it was recorded"
        )));
    }
    for (slot, output) in step.outputs.iter().zip(&outputs) {
        values[slot.index()] = Some(typed::<B>(output)?.clone());
    }
    Ok(())
}

#[cold]
fn unexpected(i: usize, input: &AnyTensor, (shape, dtype): &(Shape, DType)) -> Error {
    Error::shape(format!(
        "a program that was recorded with {dtype}{shape} as input {i} was given {}{}",
        input.dtype(),
        input.shape()
    ))
}

fn types<'a, B: Backend>(tensors: impl Iterator<Item = &'a B::Tensor>) -> Vec<(DType, Shape)> {
    tensors.map(|x| (B::dtype(x), B::shape(x))).collect()
}

/// The types of a step's operands if a timer is on, else none.
fn operands<B: Backend>(step: &Step, values: &[Option<B::Tensor>]) -> Vec<(DType, Shape)> {
    match timing::is_on() {
        true => types::<B>(step.inputs.iter().filter_map(|slot| values[slot.index()].as_ref())),
        false => Vec::new(),
    }
}

#[cold]
fn timed_compute<B: Backend>(
    step: &Step,
    values: &mut [Option<B::Tensor>],
    device: &B::Device,
    random: &mut dyn FnMut(&Action) -> Result<B::Tensor>,
) -> Result<Outputs<B::Tensor>> {
    let operands = operands::<B>(step, values);
    timed(
        (step.action.name(), true),
        || operands,
        || compute::<B>(step, values, device, random),
        |outputs| types::<B>(outputs.iter()),
        || B::synchronize(device),
    )
}

#[inline]
fn compute<B: Backend>(
    step: &Step,
    values: &mut [Option<B::Tensor>],
    device: &B::Device,
    random: &mut dyn FnMut(&Action) -> Result<B::Tensor>,
) -> Result<Outputs<B::Tensor>> {
    match &step.action {
        Action::Op(op @ (Op::AccumulateGrad | Op::SliceScatter { .. })) => {
            let (into, from) = (step.inputs[0], step.inputs[1]);
            // Moved out at its last use, so that the backend can work in place.
            let target = if step.last.contains(&into) && into != from {
                values[into.index()].take()
            } else {
                values[into.index()].clone()
            };
            let mut target = target.ok_or_else(missing)?;
            let from = values[from.index()].as_ref().ok_or_else(missing)?;
            if let Op::SliceScatter { axis, start } = *op {
                B::slice_scatter(&mut target, from, axis, start)?;
                return Ok(Outputs::one(target));
            }
            B::accumulate_grad(target, from).map(Outputs::one)
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
        Action::Random { .. } => random(&step.action).map(Outputs::one),
        Action::Call(_) => unreachable!("calls are run before"),
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
