//! Whether rows of a batch are computed apart: followed through the graph, node by node.
//!
//! The nodes are run one by one on numbers that were made up, so that all shapes are there, and beside each value
//! goes its [`State`]: whose row its elements are. A node that brings elements of different rows together, or of
//! which it is not known here that it does not, gives [`State::Mixed`] and the reason. What is so for one number of
//! rows need not be so for all: it is done for two, and extents that do not grow with the rows, or not in
//! proportion, are a reason, too.

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

/// The extents of a value without the rows, and where those are.
#[derive(PartialEq)]
struct Extents(Option<Place>, Vec<usize>);

/// What a run showed: the extents after each step, and why outputs mix rows, if they do.
pub(super) struct Trace {
    extents: Vec<Vec<Option<Extents>>>,
    pub(super) mixed: Option<String>,
}

impl<'a> Follower<'a> {
    /// # Errors
    /// An op that is not known here.
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

    /// Runs the body on inputs with `rows` rows along the axis that is said with each; one without an axis is the same
    /// for all. `outputs` are the axes of the outputs.
    ///
    /// # Errors
    /// When a node fails.
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

    /// Why rows are not apart, from traces of the same extents for two numbers of rows.
    pub(super) fn verdict(&self, traces: [Trace; 2]) -> Option<String> {
        let [first, second] = traces;
        if second.mixed.is_some() {
            return second.mixed;
        }
        let steps = self.plan.steps.iter().zip(first.extents.iter().zip(&second.extents));
        for (step, (first, second)) in steps {
            // What is mixed has no extents here, and no output depends on it.
            let mut pairs = first.iter().zip(second);
            if pairs.any(|pair| matches!(pair, (Some(first), Some(second)) if first != second)) {
                return Some(shown(step, "gives extents that depend on how many rows there are"));
            }
        }
        None
    }
}

/// A reason with the node that it is about.
fn shown(step: &Step, why: &str) -> String {
    Error::invalid(why.to_owned())
        .in_module(format!("node {:?} ({})", step.node.name, step.node.op_type))
        .to_string()
}

/// What a rule finds for the results of a node: their states, or why rows do not stay apart.
type Found<T = State> = std::result::Result<T, Reason>;
