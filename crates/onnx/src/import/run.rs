//! Walking over the steps of a plan.

use polygrad_core::{Backend, Error, Result};
use polygrad_tensor::Device;

use super::call::{Call, Results};
use super::limits::Limits;
use super::plan::{Plan, Step};
use super::value::Value;
use super::{host, ops};
use crate::graph::{Node, malformed};

/// Names the node in which something failed.
pub(crate) fn in_step(error: Error, node: &Node) -> Error {
    error.in_module(format!("node {:?} ({})", node.name, node.op_type))
}

impl<B: Backend> Plan<B> {
    /// Runs it on inputs in order, and on what it captures of the body around it.
    pub(crate) fn run(
        &self,
        inputs: Vec<Value<B>>,
        captures: &[Value<B>],
        device: &Device<B>,
        limits: &Limits,
    ) -> Result<Vec<Value<B>>> {
        if inputs.len() != self.inputs.len() {
            return Err(malformed(format!(
                "{} inputs for a body that takes {}",
                inputs.len(),
                self.inputs.len()
            )));
        }
        let mut values: Vec<Option<Value<B>>> = vec![None; self.slots];
        for (slot, value) in &self.constants {
            values[*slot] = Some(value.clone());
        }
        for (&slot, value) in self.captures.iter().zip(captures) {
            values[slot] = Some(value.clone());
        }
        for (&slot, value) in self.inputs.iter().zip(inputs) {
            values[slot] = Some(value);
        }
        for step in &self.steps {
            limits.step()?;
            let run = || {
                let value = |slot: usize| {
                    let value = values[slot].clone();
                    value.ok_or_else(|| malformed("an operand that an earlier node did not give"))
                };
                let operands = step.inputs.iter().map(|slot| slot.map(value).transpose());
                let operands = operands.collect::<Result<Vec<_>>>()?;
                let captures = step.captures.iter();
                let captures = captures.map(|slots| slots.iter().map(|&slot| value(slot)).collect());
                let captures = captures.collect::<Result<Vec<Vec<_>>>>()?;
                call_step(step, &operands, &captures, device, limits)
            };
            let results = run().map_err(|e| in_step(e, &step.node))?;
            for (slot, value) in step.outputs.iter().zip(results) {
                if let Some(slot) = slot {
                    values[*slot] = Some(value);
                }
            }
            for &slot in &step.last_uses {
                values[slot] = None;
            }
        }
        let output = |&slot: &usize| {
            let value = values[slot].clone();
            value.ok_or_else(|| malformed("an output that no node gave"))
        };
        self.outputs.iter().map(output).collect()
    }
}

/// Runs one step: on the host where all operands are small integers there, else on the device.
pub(crate) fn call_step<B: Backend>(
    step: &Step<B>,
    operands: &[Option<Value<B>>],
    captures: &[Vec<Value<B>>],
    device: &Device<B>,
    limits: &Limits,
) -> Results<B> {
    let call = Call {
        node: &step.node,
        inputs: operands,
        bodies: &step.bodies,
        captures,
        version: step.version,
        device,
        limits,
    };
    let results = match host::compute(&call)? {
        Some(value) => vec![value],
        None => (step.row.kernel)(&call)?,
    };
    ops::settle(step.row, &call, results)
}
