//! Planning: decisions made once, when a model is loaded.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polygrad_core::{Error, Result};
use polygrad_tensor::{Device, Tensor};

use super::fuse::Draft;
use super::limits::Limits;
use super::memo;
use super::ops;
use super::plan::{Action, Plan, Step};
use super::qdq;
use super::run::{call_step, in_step};
use super::value::Value;
use super::workspace::WorkspacePool;
use crate::graph::{Body, Capture, Node, ValueId};

/// The inputs of planning.
pub(crate) struct Planner<'a> {
    pub(crate) device: &'a Device,
    pub(crate) opsets: &'a HashMap<String, i64>,
    /// Values that replace the initializers of the same name: trained parameters.
    pub(crate) parameters: &'a HashMap<String, Tensor>,
    pub(crate) fold: bool,
    pub(crate) fuse: bool,
    pub(crate) limits: &'a Limits,
}

/// The largest folded tensor that is kept if it is larger than its operands.
const MAX_GROWTH: usize = 1 << 20;

impl Planner<'_> {
    pub(crate) fn plan(&self, body: &Body) -> Result<Plan> {
        self.plan_in(body, &HashMap::new())
    }

    /// Plans a body, given the known constants among its captures. They become its own, so that they are fused and
    /// prepacked as weights, except tracked ones: [`OnnxModel::set`] replaces these.
    ///
    /// [`OnnxModel::set`]: crate::OnnxModel::set
    fn plan_in(&self, body: &Body, known: &HashMap<usize, Value>) -> Result<Plan> {
        let mut constants: HashMap<usize, Value> = known
            .iter()
            .filter(|(_, value)| !value.is_tracked())
            .map(|(&slot, value)| (slot, value.clone()))
            .collect();
        for initializer in &body.initializers {
            // An initializer that is also an input is only that input's default; the model handles it.
            if body.inputs.contains(&initializer.value) {
                continue;
            }
            let name = body.name_of(initializer.value);
            let value: Value = match self.parameters.get(name) {
                Some(tensor) => tensor.clone().into(),
                None => initializer.tensor.clone().into(),
            };
            self.limits
                .add(value.bytes())
                .map_err(|e| e.in_module(format!("initializer {name:?}")))?;
            constants.insert(initializer.value.index(), value);
        }
        let fused = match self.fuse {
            true => qdq::fused(body, |name| self.parameters.contains_key(name))?,
            false => qdq::Fused::default(),
        };
        let mut slots = body.values.len() + fused.constants.len();
        for (id, literal) in fused.constants {
            constants.insert(id.index(), literal.into());
        }
        let fused = fused.nodes;
        let nodes: Vec<&Node> = (body.nodes.iter().enumerate())
            .map(|(i, node)| fused.get(&i).unwrap_or(node))
            .collect();
        let needed = needed(body, &nodes);
        let mut steps = Vec::with_capacity(nodes.len());
        for (&node, _) in nodes.iter().zip(needed).filter(|(_, needed)| *needed) {
            let in_node = |e| in_step(e, node);
            let outer = |slot: usize| constants.get(&slot).or_else(|| known.get(&slot)).cloned();
            let step = self.step(node, outer).map_err(in_node)?;
            if self.fold && self.fold(&step, &mut constants, known).map_err(in_node)? {
                continue;
            }
            steps.push(step);
        }
        let slot = |id: &ValueId| id.index();
        let outputs: Vec<usize> = body.outputs.iter().map(slot).collect();
        if self.fuse {
            let draft = Draft::new(steps, constants, slots, &outputs, self.device, self.limits);
            (steps, constants, slots) = draft.fuse()?;
        }
        // Only constants that a step or the caller still uses are kept.
        let mut used: HashSet<usize> = outputs.iter().copied().collect();
        for step in &steps {
            used.extend(step.reads().chain(step.captures.iter().flatten().copied()));
        }
        constants.retain(|slot, _| used.contains(slot));
        drop_early(&mut steps, &outputs, &constants);
        let inputs: Vec<usize> = body.inputs.iter().map(slot).collect();
        memo::plan(&mut steps, &inputs);
        let captures: Vec<usize> = captured(body, known).map(|capture| capture.inner.index()).collect();
        let passing = inputs.iter().chain(&captures).chain(&outputs).copied();
        let bodies = steps.iter().flat_map(|step| &step.bodies);
        let bytes = constants
            .values()
            .map(Value::bytes)
            .chain(bodies.map(|(_, plan)| plan.bytes));
        Ok(Plan {
            bytes: bytes.fold(0, usize::saturating_add),
            passing: passing.filter(|slot| !constants.contains_key(slot)).collect(),
            slots,
            inputs,
            outputs,
            constants: constants.into_iter().collect(),
            captures,
            steps,
            workspaces: WorkspacePool::default(),
        })
    }

    /// A step for a node. `outer` has the constants that its bodies may capture.
    fn step(&self, node: &Node, outer: impl Fn(usize) -> Option<Value>) -> Result<Step> {
        let said = node.version.or_else(|| self.opsets.get(&node.domain).copied());
        let Some(version) = said.or_else(|| ops::unsaid_version(&node.domain)) else {
            return Err(crate::graph::malformed(format!(
                "the model does not say which version of the ops of domain {:?} it calls",
                node.domain
            )));
        };
        let row = ops::find(&node.domain, &node.op_type, version)?;
        ops::check_attributes(node, version)?;
        let mut bodies = Vec::new();
        let mut captures = Vec::new();
        for (name, attribute) in &node.attributes {
            for body in attribute.bodies() {
                let known = |capture: &Capture| Some((capture.inner.index(), outer(capture.outer.index())?));
                let known = body.captures.iter().filter_map(known).collect();
                let plan = self.plan_in(body, &known);
                bodies.push((name.clone(), plan.map_err(|e: Error| e.in_module(name.clone()))?));
                captures.push(captured(body, &known).map(|capture| capture.outer.index()).collect());
            }
        }
        let mut light = node.clone();
        light.attributes.retain(|(_, attribute)| attribute.bodies().is_empty());
        Ok(Step {
            action: Action::Op(row),
            version,
            inputs: node.inputs.iter().map(|id| id.map(|id| id.index().into())).collect(),
            outputs: node.outputs.iter().map(|id| id.map(ValueId::index)).collect(),
            node: Arc::new(light),
            bodies,
            captures,
            memoized: None,
            dead: Vec::new(),
        })
    }

    /// Runs a step now, if all its operands are known.
    fn fold(&self, step: &Step, constants: &mut HashMap<usize, Value>, known: &HashMap<usize, Value>) -> Result<bool> {
        if stays(step) {
            return Ok(false);
        }
        let get = |slot: usize| constants.get(&slot).or_else(|| known.get(&slot));
        let operands: Option<Vec<Option<Value>>> = step
            .inputs
            .iter()
            .map(|operand| operand.map_or(Some(None), |operand| get(operand.slot).cloned().map(Some)))
            .collect();
        let captures: Option<Vec<Vec<Value>>> = step
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
        if self.limits.step().is_err() {
            return Ok(false);
        }
        // A failing node is left to fail at run time: it may be in a branch that is never taken.
        let alive = self.limits.alive();
        let outcome = call_step(step, &operands, &captures, self.device, self.limits);
        self.limits.set_alive(alive);
        let Ok(results) = outcome else {
            return Ok(false);
        };
        let before = operands
            .iter()
            .flatten()
            .map(Value::bytes)
            .fold(MAX_GROWTH, usize::saturating_add);
        let after = results.iter().map(Value::bytes).fold(0, usize::saturating_add);
        if after > before || self.limits.add(after).is_err() {
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

/// What each run of a body captures, given the known constants among its captures.
fn captured<'a>(body: &'a Body, known: &'a HashMap<usize, Value>) -> impl Iterator<Item = &'a Capture> {
    let passes = |capture: &&Capture| known.get(&capture.inner.index()).is_none_or(Value::is_tracked);
    body.captures.iter().filter(passes)
}

/// Whether a step must be left to each run: it, or a step in its bodies, is random, or it is a loop, which may take
/// long. Loading a file should not wait for that.
fn stays(step: &Step) -> bool {
    let inner = step.bodies.iter().flat_map(|(_, plan)| &plan.steps);
    let own = match &step.action {
        Action::Op(row) => row.random || row.op_type == "Loop",
        Action::Fused(_) => false,
    };
    own || inner.into_iter().any(stays)
}

/// Whether each node, of the body or of its replacement, contributes to an output.
pub(crate) fn needed(body: &Body, nodes: &[impl Borrow<Node>]) -> Vec<bool> {
    let mut wanted: HashSet<ValueId> = body.outputs.iter().copied().collect();
    let mut needed = vec![false; nodes.len()];
    for (i, node) in nodes.iter().map(Borrow::borrow).enumerate().rev() {
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

/// Records with each step the values that are unused after it. Constants stay in place.
fn drop_early(steps: &mut [Step], outputs: &[usize], constants: &HashMap<usize, Value>) {
    let mut later: HashSet<usize> = outputs.iter().chain(constants.keys()).copied().collect();
    for step in steps.iter_mut().rev() {
        let captured: HashSet<usize> = step.captures.iter().flatten().copied().collect();
        let made = step.outputs.iter().flatten();
        let mut dead: Vec<usize> = captured
            .iter()
            .chain(made)
            .copied()
            .filter(|slot| !later.contains(slot))
            .collect();
        dead.sort_unstable();
        dead.dedup();
        later.extend(&captured);
        // If an operand is used twice, the last use moves it, since the others are read before.
        for operand in step.inputs.iter_mut().rev().flatten() {
            operand.last = later.insert(operand.slot);
        }
        step.dead = dead;
    }
}
