//! The gradient graph, which is stored only in the tensors.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use polygrad_core::{Backend, BinaryOp, DType, Op, SavedTensor, Shape, with_local};
use smallvec::SmallVec;

use crate::Tensor;
use crate::checkpoint::Segment;
use crate::custom::CustomOp;
use crate::hook;

/// A tensor in the graph: a leaf, or the op that computed it.
pub(crate) struct Node<B: Backend> {
    /// Larger than the ids of all inputs, so that descending ids are a topological order for the backward pass.
    id: u64,
    pub(crate) kind: Kind<B>,
}

#[allow(
    clippy::large_enum_variant,
    reason = "a node is allocated once, and nearly all are ops"
)]
pub(crate) enum Kind<B: Backend> {
    Leaf(Leaf),
    Op(Call<B>),
    /// Outside the graph, with the op that cut it off, for error messages.
    Cut(Cut),
}

/// An op without a gradient that was given a tensor in the graph.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) op: &'static str,
    /// The dtype of its result.
    pub(crate) dtype: DType,
}

/// A tensor that requires a gradient.
#[derive(Default)]
pub(crate) struct Leaf {
    name: OnceLock<Arc<str>>,
    others: OnceLock<Arc<[Box<str>]>>,
}

impl Leaf {
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.name.get().cloned()
    }

    /// Does nothing if there is a name already.
    pub(crate) fn set_name(&self, name: &str) {
        self.name.get_or_init(|| name.into());
    }

    pub(crate) fn others(&self) -> Option<Arc<[Box<str>]>> {
        self.others.get().cloned()
    }

    /// Does nothing if there are further names already.
    pub(crate) fn set_others(&self, names: impl FnOnce() -> Arc<[Box<str>]>) {
        self.others.get_or_init(names);
    }
}

/// A computed op, with everything that its gradient rule needs.
pub(crate) struct Call<B: Backend> {
    pub(crate) rule: Rule<B>,
    pub(crate) inputs: SmallVec<[Edge<B>; 2]>,
    pub(crate) saved: SmallVec<[Saved<B>; 2]>,
}

/// How an op's gradient is computed.
pub(crate) enum Rule<B: Backend> {
    /// By the rules of [`rules`](crate::rules).
    Op(Op),
    /// By the user's own rule.
    Custom(Arc<dyn CustomOp<B>>),
    /// By recomputing the segment.
    Checkpoint(Arc<Segment<B>>),
}

impl<B: Backend> Rule<B> {
    /// Whether input `i` is one of two factors, so that only the other one's gradient is computed from it.
    fn multiplies(&self, i: usize) -> bool {
        let Self::Op(op) = self else { return false };
        i < 2
            && matches!(
                op,
                Op::Binary(BinaryOp::Mul) | Op::Matmul | Op::Linear { .. } | Op::Conv { activation: None, .. }
            )
    }
}

/// An input of an op, with the properties that rules need.
pub(crate) struct Edge<B: Backend> {
    pub(crate) node: Option<Arc<Node<B>>>,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

/// A value that a rule needs, and its source, with which it is put back into the graph for higher-order gradients. It
/// does not hold the node itself: for an output that would be a cycle.
pub(crate) struct Saved<B: Backend> {
    value: B::Tensor,
    source: Source,
}

#[derive(Clone, Copy)]
enum Source {
    /// Four bytes keep [`Saved`] small; no op has that many inputs.
    Input(u32),
    Output,
    Constant,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A lower bound for new nodes: every node that is made from now on, on any thread, has this id or a larger one.
pub fn next_node_id() -> u64 {
    NEXT_ID.load(Ordering::Relaxed)
}

fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl<B: Backend> Node<B> {
    pub(crate) fn leaf(leaf: Leaf) -> Self {
        Self {
            id: next_id(),
            kind: Kind::Leaf(leaf),
        }
    }

    /// A cut node is not in the graph, so it needs no id of its own.
    fn cut(cut: Cut) -> Self {
        Self {
            id: 0,
            kind: Kind::Cut(cut),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn as_leaf(&self) -> Option<&Leaf> {
        match &self.kind {
            Kind::Leaf(leaf) => Some(leaf),
            Kind::Op(_) | Kind::Cut(_) => None,
        }
    }

    pub(crate) fn as_cut(&self) -> Option<Cut> {
        match self.kind {
            Kind::Cut(cut) => Some(cut),
            Kind::Leaf(_) | Kind::Op(_) => None,
        }
    }
}

impl<B: Backend> Tensor<B> {
    /// Its node in the graph; `None` if it is outside.
    #[inline]
    pub(crate) fn graph_node(&self) -> Option<&Arc<Node<B>>> {
        self.node.as_ref().filter(|node| node.as_cut().is_none())
    }

    /// The ops of this tensor's graph, each once, by which tests check that every gradient rule was used.
    #[doc(hidden)]
    pub fn recorded_ops(&self) -> Vec<Op> {
        let mut seen = HashSet::new();
        let mut pending: Vec<&Node<B>> = self.graph_node().map(AsRef::as_ref).into_iter().collect();
        let mut ops = Vec::new();
        while let Some(node) = pending.pop() {
            let Kind::Op(call) = &node.kind else {
                continue;
            };
            if seen.insert(node.id) {
                pending.extend(call.inputs.iter().filter_map(|edge| edge.node.as_deref()));
                if let Rule::Op(op) = &call.rule {
                    ops.push(op.clone());
                }
            }
        }
        ops
    }
}

impl<B: Backend> Drop for Node<B> {
    fn drop(&mut self) {
        let Kind::Op(call) = &mut self.kind else {
            return;
        };
        // Not by recursion, since a chain of a million nodes would overflow the stack.
        let mut pending = Parents::<B>::new();
        take_parents(call, &mut pending);
        while let Some(node) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(node)
                && let Kind::Op(call) = &mut node.kind
            {
                take_parents(call, &mut pending);
            }
        }
    }
}

type Parents<B> = SmallVec<[Arc<Node<B>>; 8]>;

/// Removes the parents; those that may have parents themselves are moved to `pending`.
fn take_parents<B: Backend>(call: &mut Call<B>, pending: &mut Parents<B>) {
    let parents = call.inputs.iter_mut().filter_map(|edge| edge.node.take());
    for parent in parents {
        if let Kind::Op(_) = parent.kind {
            pending.push(parent);
        }
    }
}

impl<B: Backend> Saved<B> {
    /// The value as a tensor, which is in the graph if `in_graph`.
    fn restore(&self, call: &Call<B>, node: &Arc<Node<B>>, in_graph: bool) -> Tensor<B> {
        let source = match self.source {
            _ if !in_graph => None,
            Source::Input(i) => call.inputs[i as usize].node.clone(),
            Source::Output => Some(Arc::clone(node)),
            Source::Constant => None,
        };
        Tensor {
            value: self.value.clone(),
            node: source,
        }
    }
}

impl<B: Backend> Call<B> {
    /// The saved values, in the order in which they were saved.
    pub(crate) fn restore(&self, node: &Arc<Node<B>>, in_graph: bool) -> SmallVec<[Tensor<B>; 2]> {
        self.saved
            .iter()
            .map(|saved| saved.restore(self, node, in_graph))
            .collect()
    }
}

thread_local! {
    static GRAD_ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether ops on this thread record gradients.
#[inline]
pub fn is_grad_enabled() -> bool {
    GRAD_ENABLED.get()
}

/// Runs `f` without recording gradients on this thread.
///
/// ```
/// # use polygrad_tensor::{no_grad, is_grad_enabled};
/// assert!(!no_grad(is_grad_enabled));
/// assert!(is_grad_enabled());
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_local(&GRAD_ENABLED, false, f)
}

/// Runs `f` with recording of gradients on this thread, even inside [`no_grad`].
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    with_local(&GRAD_ENABLED, true, f)
}

/// Whether an op on these inputs has to be recorded.
#[inline]
pub(crate) fn needs_graph<B: Backend>(inputs: &[&Tensor<B>]) -> bool {
    inputs.iter().any(|input| input.is_tracked()) && is_grad_enabled()
}

/// The tensor for the result of an op without a gradient. It is outside the graph, and remembers the op if an input is
/// in the graph.
#[inline]
pub(crate) fn cut<B: Backend>(value: B::Tensor, inputs: &[&Tensor<B>], op: &'static str) -> Tensor<B> {
    let mut out = Tensor::from_inner(value);
    if may_be_marked(inputs) {
        out.node = if inputs.iter().any(|input| input.is_tracked()) {
            let dtype = out.dtype();
            Some(Arc::new(Node::cut(Cut { op, dtype })))
        } else {
            mark_of(inputs)
        };
    }
    if hook::is_on() {
        hook::report(op, inputs, &out);
    }
    out
}

#[inline]
fn may_be_marked<B: Backend>(inputs: &[&Tensor<B>]) -> bool {
    inputs.iter().any(|input| input.node.is_some()) && is_grad_enabled()
}

/// The mark of the first input that was cut off, for a result outside the graph.
#[cold]
fn mark_of<B: Backend>(inputs: &[&Tensor<B>]) -> Option<Arc<Node<B>>> {
    let marks = inputs.iter().filter_map(|input| input.node.as_ref());
    marks.filter(|node| node.as_cut().is_some()).map(Arc::clone).next()
}

/// The tensor for the result of an op, which is in the graph if an input is.
#[inline]
pub(crate) fn record<B: Backend>(value: B::Tensor, inputs: &[&Tensor<B>], op: impl FnOnce() -> Op) -> Tensor<B> {
    record_first(value, &[], inputs, op)
}

/// [`record`] for the first of an op's results.
#[inline]
pub(crate) fn record_first<B: Backend>(
    value: B::Tensor,
    others: &[&B::Tensor],
    inputs: &[&Tensor<B>],
    op: impl FnOnce() -> Op,
) -> Tensor<B> {
    if hook::is_on() {
        return record_seen(value, others, inputs, op());
    }
    if may_be_marked(inputs) {
        record_op(value, others, inputs, op())
    } else {
        Tensor::from_inner(value)
    }
}

/// [`record_first`] while an op hook is set.
#[cold]
fn record_seen<B: Backend>(value: B::Tensor, others: &[&B::Tensor], inputs: &[&Tensor<B>], op: Op) -> Tensor<B> {
    let name = op.name();
    let out = match may_be_marked(inputs) {
        true => record_op(value, others, inputs, op),
        false => Tensor::from_inner(value),
    };
    hook::report(name, inputs, &out);
    out
}

/// Not part of [`record_first`], since that is compiled again for each op.
#[inline(never)]
fn record_op<B: Backend>(value: B::Tensor, others: &[&B::Tensor], inputs: &[&Tensor<B>], op: Op) -> Tensor<B> {
    if !inputs.iter().any(|input| input.is_tracked()) {
        let node = mark_of(inputs);
        return Tensor { value, node };
    }
    let saved = op.saved();
    record_rule(value, others, inputs, Rule::Op(op), saved)
}

/// The tensor for a result in the graph. `others` are the op's further results, which have no gradient.
pub(crate) fn record_rule<B: Backend>(
    value: B::Tensor,
    others: &[&B::Tensor],
    inputs: &[&Tensor<B>],
    rule: Rule<B>,
    saved: &[SavedTensor],
) -> Tensor<B> {
    let mut kept = SmallVec::new();
    let mut keep = |value: &B::Tensor, source| {
        let value = value.clone();
        kept.push(Saved { value, source });
    };
    for saved in saved {
        match *saved {
            // The rule does not look at it. The constant takes its place, and lives anyway.
            SavedTensor::Input(i) if rule.multiplies(i) && !inputs[1 - i].is_tracked() => {
                keep(&inputs[1 - i].value, Source::Constant);
            }
            SavedTensor::Input(i) => keep(&inputs[i].value, Source::Input(i as u32)),
            SavedTensor::Inputs => {
                for (i, input) in inputs.iter().enumerate() {
                    keep(&input.value, Source::Input(i as u32));
                }
            }
            SavedTensor::Output(0) => keep(&value, Source::Output),
            SavedTensor::Output(i) => keep(others[i - 1], Source::Constant),
        }
    }
    let mut edges = SmallVec::new();
    // A loop, since collecting into a `SmallVec` costs as much as everything else here.
    for input in inputs {
        edges.push(Edge {
            node: input.graph_node().cloned(),
            shape: input.shape(),
            dtype: input.dtype(),
        });
    }
    // Built in place and not passed between functions, since it is several cache lines large.
    let node = Arc::new(Node {
        id: next_id(),
        kind: Kind::Op(Call {
            rule,
            inputs: edges,
            saved: kept,
        }),
    });
    let node = Some(node);
    Tensor { value, node }
}
