//! Execution of the steps of a plan.

use polygrad_core::{Error, Result};
use polygrad_tensor::Device;
use smallvec::{SmallVec, smallvec};

use super::call::{Bodies, Call, Operands, Results};
use super::limits::Limits;
use super::memo::{Memo, Memoized};
use super::plan::{Action, Operand, Plan, Step};
use super::value::Value;
use super::workspace::Workspace;
use super::{host, ops};
use crate::graph::{Node, malformed};

/// Adds the failed node's name to an error.
pub(crate) fn in_step(error: Error, node: &Node) -> Error {
    error.in_module(format!("node {:?} ({})", node.name, node.op_type))
}

impl Plan {
    /// Runs it on inputs in order, and on the values it captures from the enclosing body.
    pub(crate) fn run(&self, inputs: Operands, captures: &[Value], device: &Device, limits: &Limits) -> Results {
        let mut workspace = self.workspace();
        let outputs = self.run_in(&mut workspace, inputs, captures, device, limits)?;
        self.workspaces.give_back(workspace);
        Ok(outputs)
    }

    /// A workspace for the values of a run.
    pub(super) fn workspace(&self) -> Workspace {
        self.workspaces.take(self.slots, self.steps.len(), &self.constants)
    }

    /// [`Plan::run`] in a workspace of this plan, which must be discarded after an error.
    pub(super) fn run_in(
        &self,
        workspace: &mut Workspace,
        inputs: Operands,
        captures: &[Value],
        device: &Device,
        limits: &Limits,
    ) -> Results {
        if inputs.len() != self.inputs.len() {
            return Err(malformed(format!(
                "{} inputs for a body that takes {}",
                inputs.len(),
                self.inputs.len()
            )));
        }
        let Workspace { values, bytes, memos } = workspace;
        for (&slot, value) in self.captures.iter().zip(captures) {
            values[slot] = Some(value.clone());
        }
        for (&slot, value) in self.inputs.iter().zip(inputs) {
            values[slot] = Some(value);
        }
        for (step, memo) in self.steps.iter().zip(memos) {
            limits.step()?;
            let results = step
                .run(values, memo, device, limits)
                .map_err(|e| in_step(e, &step.node))?;
            let last = step.inputs.iter().flatten().filter(|operand| operand.last);
            for operand in last {
                limits.remove(std::mem::take(&mut bytes[operand.slot]));
            }
            for (slot, value) in step.outputs.iter().zip(results) {
                if let Some(slot) = slot {
                    let size = value.bytes();
                    limits.add(size).map_err(|e| in_step(e, &step.node))?;
                    bytes[*slot] = size;
                    values[*slot] = Some(value);
                }
            }
            for &slot in &step.dead {
                values[slot] = None;
                limits.remove(std::mem::take(&mut bytes[slot]));
            }
        }
        let output = |&slot: &usize| {
            let value = values[slot].clone();
            value.ok_or_else(|| malformed("an output that no node gave"))
        };
        let outputs = self.outputs.iter().map(output).collect();
        for &slot in &self.passing {
            values[slot] = None;
            limits.remove(std::mem::take(&mut bytes[slot]));
        }
        outputs
    }
}

impl Step {
    /// Operands at their last use are moved out of their slots, so that an op may see that it has the only handle.
    fn run(&self, values: &mut [Option<Value>], memo: &mut Memo, device: &Device, limits: &Limits) -> Results {
        let missing = || malformed("an operand that an earlier node did not give");
        let mut captures: SmallVec<[Vec<Value>; 1]> = SmallVec::new();
        for slots in &self.captures {
            let captured = slots.iter().map(|&slot| values[slot].clone().ok_or_else(missing));
            captures.push(captured.collect::<Result<_>>()?);
        }
        let mut operands: SmallVec<[Option<Value>; 8]> = SmallVec::with_capacity(self.inputs.len());
        for operand in &self.inputs {
            operands.push(match operand {
                None => None,
                Some(Operand { slot, last: true }) => Some(values[*slot].take().ok_or_else(missing)?),
                Some(Operand { slot, last: false }) => Some(values[*slot].clone().ok_or_else(missing)?),
            });
        }
        if let Some(results) = memo.as_ref().and_then(|last| last.on(&operands)) {
            return Ok(results.clone());
        }
        let results = call_step(self, &operands, &captures, device, limits)?;
        *memo = Memoized::new(self, &operands, &results);
        Ok(results)
    }
}

/// Runs one step: on the host if all operands are small integers there, else on the device.
pub(crate) fn call_step(
    step: &Step,
    operands: &[Option<Value>],
    captures: &[Vec<Value>],
    device: &Device,
    limits: &Limits,
) -> Results {
    with_call(step, operands, captures, device, limits, |call| {
        let row = match &step.action {
            Action::Op(row) => row,
            Action::Fused(fused) => return fused.run(call),
        };
        match host::compute(call)? {
            Some(value) => ops::settle(row, call, smallvec![value]),
            None => ops::apply(row, call),
        }
    })
}

/// Calls a function with the [`Call`] of a step.
pub(crate) fn with_call<T>(
    step: &Step,
    operands: &[Option<Value>],
    captures: &[Vec<Value>],
    device: &Device,
    limits: &Limits,
    work: impl FnOnce(&Call<'_>) -> T,
) -> T {
    work(&Call {
        node: &step.node,
        inputs: operands,
        bodies: &WithCaptures {
            bodies: &step.bodies,
            captures,
            device,
            limits,
        },
        version: step.version,
        device,
        limits,
    })
}

/// The bodies of a step, and what each captures.
struct WithCaptures<'a> {
    bodies: &'a [(String, Plan)],
    captures: &'a [Vec<Value>],
    device: &'a Device,
    limits: &'a Limits,
}

impl Bodies for WithCaptures<'_> {
    fn has(&self, name: &str) -> bool {
        self.bodies.iter().any(|(key, _)| key == name)
    }

    fn run(&self, name: &str, inputs: Operands) -> Results {
        let found = self.bodies.iter().zip(self.captures).find(|((key, _), _)| key == name);
        let ((_, plan), captures) = found.ok_or_else(|| malformed(format!("the body {name} is missing")))?;
        self.limits
            .nested(|| plan.run(inputs, captures, self.device, self.limits))
            .map_err(|e| e.in_module(name))
    }
}
