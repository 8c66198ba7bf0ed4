//! A body as steps.

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
    /// Bytes of the constants, those of bodies among them.
    pub(crate) bytes: usize,
    /// Values that are there from the start.
    pub(crate) constants: Vec<(usize, Value)>,
    /// Inputs, outputs and captures, which are still there after the last step.
    pub(crate) passing: Vec<usize>,
    /// Where the values of the body around it come in.
    pub(crate) captures: Vec<usize>,
    pub(crate) steps: Vec<Step>,
    /// For the values of a run, with the constants in their places; reused from run to run.
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
    /// What its results depend on, if they are kept from run to run.
    pub(super) memoized: Option<Basis>,
    /// What it captures or gives and nobody needs after it.
    pub(crate) dead: Vec<usize>,
}

/// A value that a step is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) slot: usize,
    /// Whether nobody needs it any more.
    pub(crate) last: bool,
}

impl From<usize> for Operand {
    fn from(slot: usize) -> Self {
        Self { slot, last: false }
    }
}

impl Step {
    /// The slots of its operands, those of its bodies not among them.
    pub(super) fn reads(&self) -> impl Iterator<Item = usize> {
        self.inputs.iter().flatten().map(|operand| operand.slot)
    }
}

/// What computes a step.
pub(crate) enum Action {
    /// The op of its node.
    Op(&'static Row),
    /// One op in the place of several, or one that was made ready when the model was loaded.
    Fused(Box<Fused>),
}
