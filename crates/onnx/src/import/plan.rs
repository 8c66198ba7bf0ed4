//! What is decided once, when a model is loaded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polygrad_core::{Backend, Error, Result};
use polygrad_tensor::{Device, Tensor};

use super::limits::Limits;
use super::ops::{self, Row};
use super::run::{call_step, in_step};
use super::value::Value;
use crate::graph::{Body, Node, ValueId};

/// A body, ready to run.
pub(crate) struct Plan<B: Backend> {
    /// How many values there are.
    pub(crate) slots: usize,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// Values that are there from the start.
    pub(crate) constants: Vec<(usize, Value<B>)>,
    /// Where the values of the body around it come in.
    pub(crate) captures: Vec<usize>,
    pub(crate) steps: Vec<Step<B>>,
}

/// One node of a plan.
pub(crate) struct Step<B: Backend> {
    pub(crate) row: &'static Row<B>,
    pub(crate) node: Arc<Node>,
    pub(crate) version: i64,
    pub(crate) inputs: Vec<Option<usize>>,
    pub(crate) outputs: Vec<Option<usize>>,
    /// The bodies in its attributes, and for each the slots of what it captures.
    pub(crate) bodies: Vec<(String, Plan<B>)>,
    pub(crate) captures: Vec<Vec<usize>>,
    /// Values that nobody needs after it.
    pub(crate) last_uses: Vec<usize>,
}

/// What a plan is made with.
pub(crate) struct Planner<'a, B: Backend> {
    pub(crate) device: &'a Device<B>,
    pub(crate) opsets: &'a HashMap<String, i64>,
    /// Values to take instead of the initializers of the same name: those that train.
    pub(crate) parameters: &'a HashMap<String, Tensor<B>>,
    pub(crate) fold: bool,
    pub(crate) limits: &'a Limits,
}

/// The largest folded tensor that is kept although its operands were smaller.
const MAX_GROWTH: usize = 1 << 20;

impl<B: Backend> Planner<'_, B> {
    pub(crate) fn plan(&self, body: &Body) -> Result<Plan<B>> {
        let mut constants: HashMap<usize, Value<B>> = HashMap::new();
        for initializer in &body.initializers {
            // One that is also an input is only that input's default; the model handles it.
            if body.inputs.contains(&initializer.value) {
                continue;
            }
            let name = body.name_of(initializer.value);
            let value = match self.parameters.get(name) {
                Some(tensor) => tensor.clone().into(),
                None => initializer.tensor.clone().into(),
            };
            constants.insert(initializer.value.index(), value);
        }
        let needed = needed(body);
        let mut steps = Vec::with_capacity(body.nodes.len());
        for (node, _) in body.nodes.iter().zip(needed).filter(|(_, needed)| *needed) {
            let in_node = |e| in_step(e, node);
            let step = self.step(node).map_err(in_node)?;
            if self.fold && self.fold(&step, &mut constants).map_err(in_node)? {
                continue;
            }
            steps.push(step);
        }
        let slot = |id: &ValueId| id.index();
        let outputs: Vec<usize> = body.outputs.iter().map(slot).collect();
        drop_early(&mut steps, &outputs);
        // Of the constants only those that a step or the caller still uses.
        let mut used: HashSet<usize> = outputs.iter().copied().collect();
        for step in &steps {
            used.extend(step.inputs.iter().flatten().chain(step.captures.iter().flatten()));
        }
        constants.retain(|slot, _| used.contains(slot));
        Ok(Plan {
            slots: body.values.len(),
            inputs: body.inputs.iter().map(slot).collect(),
            outputs,
            constants: constants.into_iter().collect(),
            captures: body.captures.iter().map(|capture| capture.inner.index()).collect(),
            steps,
        })
    }

    fn step(&self, node: &Node) -> Result<Step<B>> {
        let Some(&version) = self.opsets.get(&node.domain) else {
            return Err(crate::graph::malformed(format!(
                "the model does not say which version of the ops of domain {:?} it calls",
                node.domain
            )));
        };
        let row = ops::find::<B>(&node.domain, &node.op_type, version)?;
        let mut bodies = Vec::new();
        let mut captures = Vec::new();
        for (name, attribute) in &node.attributes {
            for body in attribute.bodies() {
                bodies.push((
                    name.clone(),
                    self.plan(body).map_err(|e: Error| e.in_module(name.clone()))?,
                ));
                captures.push(body.captures.iter().map(|capture| capture.outer.index()).collect());
            }
        }
        let slots = |ids: &[Option<ValueId>]| ids.iter().map(|id| id.map(ValueId::index)).collect();
        let mut light = node.clone();
        light.attributes.retain(|(_, attribute)| attribute.bodies().is_empty());
        Ok(Step {
            row,
            version,
            inputs: slots(&node.inputs),
            outputs: slots(&node.outputs),
            node: Arc::new(light),
            bodies,
            captures,
            last_uses: Vec::new(),
        })
    }

    /// Runs a step now, if all that it needs is there.
    fn fold(&self, step: &Step<B>, constants: &mut HashMap<usize, Value<B>>) -> Result<bool> {
        if stays(step) {
            return Ok(false);
        }
        let get = |slot: usize| constants.get(&slot);
        let operands: Option<Vec<Option<Value<B>>>> = step
            .inputs
            .iter()
            .map(|slot| slot.map_or(Some(None), |slot| get(slot).cloned().map(Some)))
            .collect();
        let captures: Option<Vec<Vec<Value<B>>>> = step
            .captures
            .iter()
            .map(|slots| slots.iter().map(|&slot| get(slot).cloned()).collect())
            .collect();
        let (Some(operands), Some(captures)) = (operands, captures) else {
            return Ok(false);
        };
        let tracked = operands
            .iter()
            .flatten()
            .chain(captures.iter().flatten())
            .any(Value::is_tracked);
        if tracked {
            return Ok(false);
        }
        // A node that fails is left to fail when it runs: it may be in a branch that is never taken.
        let Ok(results) = call_step(step, &operands, &captures, self.device, self.limits) else {
            return Ok(false);
        };
        let before = operands
            .iter()
            .flatten()
            .map(Value::bytes)
            .fold(MAX_GROWTH, usize::saturating_add);
        if results.iter().map(Value::bytes).fold(0, usize::saturating_add) > before {
            return Ok(false);
        }
        for (slot, value) in step.outputs.iter().zip(results) {
            if let Some(slot) = slot {
                constants.insert(*slot, value);
            }
        }
        Ok(true)
    }
}

/// Whether a step is for each run to take: it, or one in its bodies, gives something else each time, or is a loop, which may be meant to
/// take long: it is not for whoever loads a file to wait for it.
fn stays<B: Backend>(step: &Step<B>) -> bool {
    let inner = step.bodies.iter().flat_map(|(_, plan)| &plan.steps);
    step.row.random || step.row.op_type == "Loop" || inner.into_iter().any(stays)
}

/// Which nodes lead to an output.
fn needed(body: &Body) -> Vec<bool> {
    let mut wanted: HashSet<ValueId> = body.outputs.iter().copied().collect();
    let mut needed = vec![false; body.nodes.len()];
    for (i, node) in body.nodes.iter().enumerate().rev() {
        if !node.outputs.iter().flatten().any(|id| wanted.contains(id)) {
            continue;
        }
        needed[i] = true;
        wanted.extend(node.inputs.iter().flatten());
        for (_, attribute) in &node.attributes {
            let bodies = attribute.bodies().iter();
            wanted.extend(bodies.flat_map(|body| body.captures.iter().map(|capture| capture.outer)));
        }
    }
    needed
}

/// Notes with each step the values that nobody needs after it.
fn drop_early<B: Backend>(steps: &mut [Step<B>], outputs: &[usize]) {
    let mut later: HashSet<usize> = outputs.iter().copied().collect();
    for step in steps.iter_mut().rev() {
        let used = step.inputs.iter().flatten().chain(step.captures.iter().flatten());
        let made = step.outputs.iter().flatten();
        let mut last: Vec<usize> = used.chain(made).copied().filter(|slot| !later.contains(slot)).collect();
        last.sort_unstable();
        last.dedup();
        later.extend(&last);
        step.last_uses = last;
    }
}
