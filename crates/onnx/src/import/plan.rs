//! Plans: bodies as lists of steps.

use std::sync::Arc;

use super::fuse::Fused;
use super::memo::Basis;
use super::ops::Row;
use super::value::Value;
use super::workspace::WorkspacePool;
use crate::graph::Node;

/// A body, ready to run.
pub(crate) struct Plan {
    /// How many values there are.
    pub(crate) slots: usize,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// Bytes of the constants, including those of inner bodies.
    pub(crate) bytes: usize,
    /// Values that exist from the start.
    pub(crate) constants: Vec<(usize, Value)>,
    /// Inputs, outputs and captures, which are still alive after the last step.
    pub(crate) passing: Vec<usize>,
    /// The slots of the values captured from the enclosing body.
    pub(crate) captures: Vec<usize>,
    pub(crate) steps: Vec<Step>,
    /// Memory for the values of runs, with the constants in place; reused from run to run.
    pub(super) workspaces: WorkspacePool,
}

/// One node of a plan.
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) node: Arc<Node>,
    pub(crate) version: i64,
    pub(crate) inputs: Vec<Option<Operand>>,
    pub(crate) outputs: Vec<Option<usize>>,
    /// The bodies in its attributes, and for each the slots of what it captures.
    pub(crate) bodies: Vec<(String, Plan)>,
    pub(crate) captures: Vec<Vec<usize>>,
    /// The condition under which its results are reused between runs, if they are.
    pub(super) memoized: Option<Basis>,
    /// Values that it captures or produces and that are unused after it.
    pub(crate) dead: Vec<usize>,
}

/// An operand of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) slot: usize,
    /// Whether this is its last use.
    pub(crate) last: bool,
}

impl From<usize> for Operand {
    fn from(slot: usize) -> Self {
        Self { slot, last: false }
    }
}

impl Step {
    /// The slots of its operands, without those of its bodies.
    pub(super) fn reads(&self) -> impl Iterator<Item = usize> {
        self.inputs.iter().flatten().map(|operand| operand.slot)
    }
}

/// How a step is computed.
pub(crate) enum Action {
    /// By the op of its node.
    Op(&'static Row),
    /// By an op that replaces several, or one that was prepared when the model was loaded.
    Fused(Box<Fused>),
}
