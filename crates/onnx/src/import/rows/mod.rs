//! Checks that the rows of a batch are computed independently, by following them through the graph node by node.
//!
//! The nodes are run one by one on made-up numbers, so that all shapes are known. Each value has a [`State`]: which row
//! each of its elements belongs to. A node that combines elements of different rows, or that is not known to keep them
//! apart, results in [`State::Mixed`] with the reason. What holds for one number of rows may not hold for all, so the
//! check is done for two numbers. Extents that do not grow in proportion to the rows are a reason, too.

mod contract;
mod counts;
mod foreign;
mod move_axes;
mod rules;
mod state;

use std::collections::HashMap;

use polygrad_core::{Error, Result};
use polygrad_tensor::Device;

use super::limits::Limits;
use super::options::Options;
use super::plan::{Plan, Step};
use super::planner::Planner;
use super::run::{call_step, in_step};
use super::value::Value;
use crate::graph::{Body, malformed};
use rules::Seen;
use state::{Place, Reason, State};

/// Follows rows through a body.
pub(super) struct Follower<'a> {
    plan: Plan,
    device: &'a Device,
    options: &'a Options,
}

/// The position of the rows, and the extents of a value without them.
#[derive(PartialEq)]
struct Extents(Option<Place>, Vec<usize>);

/// The outcome of a run: the extents after each step, and why outputs mix rows, if they do.
pub(super) struct Trace {
    extents: Vec<Vec<Option<Extents>>>,
    pub(super) mixed: Option<String>,
}

impl<'a> Follower<'a> {
    /// # Errors
    /// If an op is unknown.
    pub(super) fn new(
        body: &Body,
        opsets: &HashMap<String, i64>,
        device: &'a Device,
        options: &'a Options,
    ) -> Result<Self> {
        let planner = Planner {
            device,
            opsets,
            parameters: &HashMap::new(),
            fold: false,
            fuse: false,
            limits: &Limits::folding(options),
        };
        Ok(Self {
            plan: planner.plan(body)?,
            device,
            options,
        })
    }

    /// Runs the body on inputs with `rows` rows along the axis given with each. An input without an axis is the same
    /// for all rows. `outputs` are the axes of the rows in the outputs.
    ///
    /// # Errors
    /// If a node fails.
    pub(super) fn follow(&self, inputs: Vec<(Value, Option<usize>)>, outputs: &[usize], rows: usize) -> Result<Trace> {
        let plan = &self.plan;
        let limits = Limits::new(self.options, plan.bytes);
        let mut values: Vec<Option<Value>> = vec![None; plan.slots];
        let mut states: Vec<State> = vec![State::Free; plan.slots];
        for (slot, value) in &plan.constants {
            values[*slot] = Some(value.clone());
        }
        for (&slot, (value, axis)) in plan.inputs.iter().zip(inputs) {
            if let Some(axis) = axis {
                states[slot] = State::along(&value, Place { axis, inner: 1 }, rows);
            }
            values[slot] = Some(value);
        }
        let mut extents = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            limits.step()?;
            let found = self.step(step, &mut values, &mut states, rows, &limits);
            extents.push(found.map_err(|e| in_step(e, &step.node))?);
        }
        let mut mixed = None;
        for (&slot, &axis) in plan.outputs.iter().zip(outputs) {
            let value = values[slot]
                .as_ref()
                .ok_or_else(|| malformed("an output that no node gave"))?;
            mixed = mixed.or_else(|| states[slot].is_not_along(value, axis, rows));
        }
        Ok(Trace { extents, mixed })
    }

    fn step(
        &self,
        step: &Step,
        values: &mut [Option<Value>],
        states: &mut [State],
        rows: usize,
        limits: &Limits,
    ) -> Result<Vec<Option<Extents>>> {
        let get = |slot: usize| {
            let value = values[slot].clone();
            value.ok_or_else(|| malformed("an operand that an earlier node did not give"))
        };
        let mut operands = Vec::with_capacity(step.inputs.len());
        let mut known = Vec::with_capacity(step.inputs.len());
        for operand in &step.inputs {
            operands.push(operand.map(|operand| get(operand.slot)).transpose()?);
            known.push(operand.map_or(State::Free, |operand| states[operand.slot].clone()));
        }
        let mut captures = Vec::with_capacity(step.captures.len());
        for slots in &step.captures {
            captures.push(slots.iter().map(|&slot| get(slot)).collect::<Result<Vec<_>>>()?);
        }
        let captured: Vec<State> = step
            .captures
            .iter()
            .flatten()
            .map(|&slot| states[slot].clone())
            .collect();
        let results = call_step(step, &operands, &captures, self.device, limits)?;
        let seen = Seen {
            step,
            operands: &operands,
            states: &known,
            captured: &captured,
            results: &results,
            rows,
            device: self.device,
            limits,
        };
        let found = seen.states()?;
        let mut extents = Vec::with_capacity(results.len());
        for ((slot, value), state) in step.outputs.iter().zip(results).zip(found) {
            extents.push(
                state
                    .extents(&value, rows)
                    .map(|(place, extents)| Extents(place, extents)),
            );
            if let Some(slot) = slot {
                values[*slot] = Some(value);
                states[*slot] = state;
            }
        }
        for operand in step.inputs.iter().flatten().filter(|operand| operand.last) {
            values[operand.slot] = None;
        }
        for &slot in &step.dead {
            values[slot] = None;
        }
        Ok(extents)
    }

    /// The reason why rows are not independent, from traces with the same extents for two numbers of rows.
    pub(super) fn verdict(&self, traces: [Trace; 2]) -> Option<String> {
        let [first, second] = traces;
        if second.mixed.is_some() {
            return second.mixed;
        }
        let steps = self.plan.steps.iter().zip(first.extents.iter().zip(&second.extents));
        for (step, (first, second)) in steps {
            // Mixed values have no extents here, and no output depends on them.
            let mut pairs = first.iter().zip(second);
            if pairs.any(|pair| matches!(pair, (Some(first), Some(second)) if first != second)) {
                return Some(shown(step, "gives extents that depend on how many rows there are"));
            }
        }
        None
    }
}

/// A reason with the name of its node.
fn shown(step: &Step, why: &str) -> String {
    Error::invalid(why.to_owned())
        .in_module(format!("node {:?} ({})", step.node.name, step.node.op_type))
        .to_string()
}

/// The result of a rule: states of a node's results, or why rows do not stay apart.
type Found<T = State> = std::result::Result<T, Reason>;
