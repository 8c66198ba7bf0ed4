//! The backward pass.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use polygrad_core::{AnyBackend, Backend, Error, ErrorKind, Result};
use smallvec::SmallVec;

use crate::accumulated::{Accumulated, add_to};
use crate::activity::{Active, Activity};
use crate::autocast::in_mode;
use crate::erased::{into_same, same};
use crate::graph::{Call, Cut, Kind, Node, Rule};
use crate::rules::Passed;
use crate::{Tensor, enable_grad, no_grad, rules};

/// How to run a backward pass.
pub struct BackwardOptions<'a, B: Backend = AnyBackend> {
    gradient: Option<&'a Tensor<B>>,
    create_graph: bool,
    capture: Vec<u64>,
    hook: Option<Rc<Hook<B>>>,
}

impl<B: Backend> Default for BackwardOptions<'_, B> {
    fn default() -> Self {
        Self {
            gradient: None,
            create_graph: false,
            capture: Vec::new(),
            hook: None,
        }
    }
}

impl<'a, B: Backend> BackwardOptions<'a, B> {
    /// The gradient of the tensor that `backward` is called on, of its shape and dtype. Default: 1, for a
    /// tensor of one element.
    #[must_use]
    pub fn gradient(mut self, gradient: &'a Tensor<B>) -> Self {
        self.gradient = Some(gradient);
        self
    }

    /// Records the backward pass itself, so that its gradients can be differentiated again. Default: false.
    #[must_use]
    pub fn create_graph(mut self, create_graph: bool) -> Self {
        self.create_graph = create_graph;
        self
    }

    /// Also keeps the gradient of this tensor, which need not be a leaf.
    #[must_use]
    pub fn capture(mut self, tensor: &Tensor<B>) -> Self {
        self.capture.extend(tensor.node_id());
        self
    }

    /// Calls `hook` with each leaf's [id](GradId::grad_id) and gradient as soon as that gradient is final: while the
    /// pass continues, or at its end if the pass cannot know earlier. Leaves without a gradient are not reported. An
    /// error of the hook ends the pass.
    #[must_use]
    pub fn hook(mut self, hook: impl Fn(u64, &Tensor<B>) -> Result<()> + 'static) -> Self {
        self.hook = Some(Rc::new(hook));
        self
    }
}

/// Things that have a node in the gradient graph: tensors, and parameters that hold one.
pub trait GradId {
    /// The id of the node; `None` if no gradient flows into it.
    fn grad_id(&self) -> Option<u64>;

    /// A name for error messages.
    fn grad_name(&self) -> Option<Arc<str>> {
        None
    }

    /// Further names by which [`Gradients::by_name`] finds it.
    fn grad_other_names(&self) -> Option<Arc<[Box<str>]>> {
        None
    }

    /// Whether it is the result of an op in the graph. The gradient of such a tensor is kept only if it is
    /// [captured](BackwardOptions::capture).
    fn is_inner(&self) -> bool {
        false
    }
}

impl<B: Backend> GradId for Tensor<B> {
    fn grad_id(&self) -> Option<u64> {
        self.node_id()
    }

    fn grad_name(&self) -> Option<Arc<str>> {
        self.name()
    }

    fn grad_other_names(&self) -> Option<Arc<[Box<str>]>> {
        self.node.as_ref()?.as_leaf()?.others()
    }

    fn is_inner(&self) -> bool {
        self.is_tracked() && !self.is_leaf()
    }
}

/// The gradients of one backward pass, for every leaf that the result depends on.
pub struct Gradients<B: Backend = AnyBackend> {
    /// By increasing id.
    entries: Vec<Gradient<B>>,
}

struct Gradient<B: Backend> {
    id: u64,
    name: Option<Arc<str>>,
    other_names: Option<Arc<[Box<str>]>>,
    value: Tensor<B>,
}

impl<B: Backend> Gradient<B> {
    fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name) || self.other_names.iter().flat_map(|names| &**names).any(|n| **n == *name)
    }
}

impl<B: Backend> Gradients<B> {
    /// Gradients from other sources than a backward pass, such as a replay, another process or a formula. Tensors
    /// without a node in the graph are left out. If a node is given several times, the last gradient counts.
    pub fn new<'a, G: GradId + 'a>(gradients: impl IntoIterator<Item = (&'a G, Tensor<B>)>) -> Self {
        let mut entries: Vec<Gradient<B>> = Vec::new();
        for (of, value) in gradients {
            let Some(id) = of.grad_id() else { continue };
            let entry = Gradient {
                id,
                name: of.grad_name(),
                other_names: of.grad_other_names(),
                value,
            };
            match entries.binary_search_by_key(&id, |entry| entry.id) {
                Ok(i) => entries[i] = entry,
                Err(i) => entries.insert(i, entry),
            }
        }
        Self { entries }
    }

    /// The gradient of a leaf or captured tensor; `None` if the result does not depend on it.
    pub fn get(&self, of: &impl GradId) -> Option<&Tensor<B>> {
        let id = of.grad_id()?;
        let i = self.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
        Some(&self.entries[i].value)
    }

    /// The gradient of a leaf or captured tensor.
    ///
    /// # Errors
    /// [`ErrorKind::NoGradient`] when the result does not depend on it, or it is not a leaf and was not captured.
    pub fn require(&self, of: &impl GradId) -> Result<&Tensor<B>> {
        self.get(of).ok_or_else(|| {
            let name = of.grad_name().map_or_else(String::new, |name| format!(" {name:?}"));
            let (why, hint) = if of.grad_id().is_none() {
                (
                    "it does not require one",
                    "make it a leaf with requires_grad or Tensor::var before it is used",
                )
            } else if of.is_inner() {
                (
                    "it is no leaf, and gradients of others are kept only when they are captured",
                    "run the backward pass as backward_with(&BackwardOptions::default().capture(&tensor))",
                )
            } else {
                (
                    "the result does not depend on it",
                    "use it in the forward pass, or freeze it if it is meant to be left out",
                )
            };
            Error::new(
                ErrorKind::NoGradient,
                format!("there is no gradient for the tensor{name}: {why}"),
            )
            .with_hint(hint)
        })
    }

    /// The gradient of the leaf of this name. A parameter that a model uses in several places is found by each of its
    /// names.
    pub fn by_name(&self, name: &str) -> Option<&Tensor<B>> {
        let entry = self.entries.iter().find(|entry| entry.is_named(name))?;
        Some(&entry.value)
    }

    /// All gradients, with the names of their leaves.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &Tensor<B>)> {
        self.entries.iter().map(|entry| (entry.name.as_deref(), &entry.value))
    }

    /// All gradients, mutably, for example to clip or scale them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Tensor<B>> {
        self.entries.iter_mut().map(|entry| &mut entry.value)
    }

    /// The number of gradients.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the gradients of another pass, as for gradient accumulation over several batches.
    ///
    /// # Errors
    /// When the device fails; the sums are then incomplete and must not be used.
    pub fn accumulate(&mut self, other: Self) -> Result<()> {
        for gradient in other.entries {
            match self.entries.binary_search_by_key(&gradient.id, |entry| entry.id) {
                Ok(i) => add_to(&mut self.entries[i].value, gradient.value)?,
                Err(i) => self.entries.insert(i, gradient),
            }
        }
        Ok(())
    }
}

/// No gradients.
impl<B: Backend> Default for Gradients<B> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

/// Prints names, dtypes and shapes. Printing values might have to wait for the device.
impl<B: Backend> fmt::Debug for Gradients<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let described = self.iter().map(|(name, gradient)| {
            let text = format!("{}{}", gradient.dtype(), gradient.shape());
            (name.unwrap_or("(unnamed)"), text)
        });
        f.debug_map().entries(described).finish()
    }
}

impl<B: Backend> Tensor<B> {
    /// The gradients of this tensor, which has one element, with respect to all leaves that it depends on.
    ///
    /// # Errors
    /// [`ErrorKind::NoGradient`] when it depends on no leaf, or an op on the way has no gradient rule;
    /// [`ErrorKind::Shape`] when it has more than one element.
    pub fn backward(&self) -> Result<Gradients<B>> {
        self.backward_with(&BackwardOptions::default())
    }

    /// [`Tensor::backward`] with options: a gradient of the result, a recorded backward pass, gradients of inner
    /// tensors.
    ///
    /// # Errors
    /// As [`Tensor::backward`]; and when the given gradient has another shape, dtype or device.
    pub fn backward_with(&self, options: &BackwardOptions<'_, B>) -> Result<Gradients<B>> {
        let Some(root) = self.graph_node() else {
            return Err(self.without_graph());
        };
        let active = Active::begin(Activity::Backward(root.id()));
        let seed = match options.gradient {
            Some(gradient) => self.checked_seed(gradient)?,
            None => self.unit_seed()?,
        };
        let wanted = Wanted {
            create_graph: options.create_graph,
            capture: &options.capture,
        };
        let watch = options
            .hook
            .as_ref()
            .map(|hook| Box::new(Watch::new(Rc::clone(hook), root)));
        let entries = if B::ERASED {
            let (seed, watch) = (into_same(seed), into_same(watch));
            into_same(propagate_erased(same(root), seed, wanted, watch, &active))
        } else {
            propagate(root, seed, wanted, watch, &active)
        };
        entries.map(|entries| Gradients { entries })
    }

    /// The error of a backward pass from this tensor, which is not in the graph.
    #[cold]
    fn without_graph(&self) -> Error {
        let text = "the tensor does not depend on any tensor that requires a gradient";
        let error = |text: String| Error::new(ErrorKind::NoGradient, text).with_op("backward");
        match self.node.as_ref().and_then(|node| node.as_cut()) {
            Some(Cut { op, dtype }) => error(format!(
                "{text}: {op} gives {dtype} and no gradient; the graph was cut there"
            ))
            .with_hint(format!("compute the loss from what {op} was given")),
            None => error(text.to_owned()).with_hint(
                "make a leaf with requires_grad or Tensor::var, and compute outside no_grad and without detach",
            ),
        }
    }

    fn unit_seed(&self) -> Result<Self> {
        let shape = self.shape();
        if shape.numel() != 1 {
            return Err(Error::shape(format!(
                "a tensor of shape {shape} has {} elements, not one",
                shape.numel()
            ))
            .with_op("backward")
            .with_hint("reduce it with sum or mean, or give its gradient with backward_with"));
        }
        self.ones_like().map_err(|e| e.with_op("backward"))
    }

    fn checked_seed(&self, gradient: &Self) -> Result<Self> {
        self.check_device(gradient)?;
        if gradient.shape() != self.shape() || gradient.dtype() != self.dtype() {
            return Err(Error::shape(format!(
                "the gradient is {}{}, the tensor {}{}",
                gradient.dtype(),
                gradient.shape(),
                self.dtype(),
                self.shape()
            ))
            .with_op("backward"));
        }
        Ok(gradient.clone())
    }
}

/// A node whose gradient is not complete yet.
struct Pending<B: Backend> {
    node: Arc<Node<B>>,
    gradient: Accumulated<B>,
}

/// The pending nodes, by id. Boxed, since the map allocates room for eleven entries at a time.
type Frontier<B> = BTreeMap<u64, Box<Pending<B>>>;

/// The function that receives the gradients of leaves.
type Hook<B> = dyn Fn(u64, &Tensor<B>) -> Result<()>;

/// Tracks when the gradients of leaves become final.
struct Watch<B: Backend> {
    hook: Rc<Hook<B>>,
    /// For each leaf, the number of its uses by ops that the backward pass has not processed yet.
    uses: HashMap<u64, usize>,
    seen: HashSet<u64>,
    /// The number of checkpointed segments that have not been recomputed yet. Each of them may use any leaf.
    segments: usize,
    /// Leaves all of whose uses have been processed.
    unused: Vec<u64>,
}

impl<B: Backend> Watch<B> {
    fn new(hook: Rc<Hook<B>>, root: &Arc<Node<B>>) -> Self {
        let mut watch = Self {
            hook,
            uses: HashMap::new(),
            seen: HashSet::new(),
            segments: 0,
            unused: Vec::new(),
        };
        watch.follow(root);
        watch
    }

    /// Counts the uses of leaves in the graph of `root`.
    fn follow(&mut self, root: &Arc<Node<B>>) {
        let mut pending = vec![root];
        while let Some(node) = pending.pop() {
            let Kind::Op(call) = &node.kind else { continue };
            if !self.seen.insert(node.id()) {
                continue;
            }
            self.segments += usize::from(matches!(call.rule, Rule::Checkpoint(_)));
            for parent in call.inputs.iter().filter_map(|edge| edge.node.as_ref()) {
                match parent.kind {
                    Kind::Leaf(_) => *self.uses.entry(parent.id()).or_default() += 1,
                    Kind::Op(_) | Kind::Cut(_) => pending.push(parent),
                }
            }
        }
    }

    /// Records that a call has been processed. `again` is the graph that was recomputed for it, through which the
    /// gradient continues.
    fn passed(&mut self, call: &Call<B>, again: Option<&Arc<Node<B>>>) {
        if let Some(again) = again {
            self.follow(again);
        }
        self.segments -= usize::from(matches!(call.rule, Rule::Checkpoint(_)));
        for parent in call.inputs.iter().filter_map(|edge| edge.node.as_ref()) {
            if let Some(uses) = self.uses.get_mut(&parent.id()) {
                *uses -= 1;
                if *uses == 0 {
                    self.unused.push(parent.id());
                }
            }
        }
    }

    /// Takes a leaf whose gradient is final, if there is one.
    fn pop(&mut self, pending: &mut Frontier<B>) -> Option<Box<Pending<B>>> {
        while self.segments == 0 {
            let leaf = self.unused.pop()?;
            // A recomputed segment may use it again.
            if self.uses.get(&leaf) == Some(&0)
                && let Some(found) = pending.remove(&leaf)
            {
                return Some(found);
            }
        }
        None
    }
}

/// Options of a pass besides the gradients of leaves.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    create_graph: bool,
    capture: &'a [u64],
}

/// [`propagate`] for [`AnyBackend`], so that it is compiled once, with all rules.
#[inline(never)]
fn propagate_erased(
    root: &Arc<Node<AnyBackend>>,
    seed: Tensor,
    wanted: Wanted<'_>,
    watch: Option<Box<Watch<AnyBackend>>>,
    active: &Active,
) -> Result<Vec<Gradient<AnyBackend>>> {
    propagate(root, seed, wanted, watch, active)
}

/// The gradients of all leaves, by increasing id.
fn propagate<B: Backend>(
    root: &Arc<Node<B>>,
    seed: Tensor<B>,
    wanted: Wanted<'_>,
    watch: Option<Box<Watch<B>>>,
    active: &Active,
) -> Result<Vec<Gradient<B>>> {
    // The forward pass's casts are in the graph already; the rules must not cast again.
    let walk = || in_mode(None, || walk_back(root, seed, wanted, watch, active));
    if wanted.create_graph {
        enable_grad(walk)
    } else {
        no_grad(walk)
    }
}

/// Repeatedly takes the pending node with the largest id and passes its gradient on to its inputs, until only leaves
/// are left. The node's gradient is complete, since every node that uses it has a larger id.
fn walk_back<B: Backend>(
    root: &Arc<Node<B>>,
    seed: Tensor<B>,
    wanted: Wanted<'_>,
    mut watch: Option<Box<Watch<B>>>,
    active: &Active,
) -> Result<Vec<Gradient<B>>> {
    let mut pending = Frontier::new();
    let mut entries = Vec::with_capacity(4);
    let mut next = Some((Arc::clone(root), Accumulated::whole(seed)));
    while let Some((node, gradient)) = next {
        let id = node.id();
        active.turn_to(Activity::Backward(id));
        let gradient = gradient.complete()?;
        match &node.kind {
            Kind::Leaf(leaf) => {
                if let Some(watch) = &watch {
                    (watch.hook)(id, &gradient)?;
                }
                entries.push(Gradient {
                    id,
                    name: leaf.name(),
                    other_names: leaf.others(),
                    value: gradient,
                });
            }
            Kind::Cut(_) => unreachable!("edges lead to nodes in the graph"),
            Kind::Op(call) => {
                if wanted.capture.contains(&id) {
                    entries.push(Gradient {
                        id,
                        name: None,
                        other_names: None,
                        value: gradient.clone(),
                    });
                }
                let again = pass(&mut pending, &node, call, gradient, wanted.create_graph)?;
                if let Some(watch) = &mut watch {
                    watch.passed(call, again.as_ref());
                }
            }
        }
        let leaf = watch.as_mut().and_then(|watch| watch.pop(&mut pending));
        let found = leaf.or_else(|| pending.pop_last().map(|(_, found)| found));
        next = found.map(|found| (found.node, found.gradient));
    }
    match watch {
        // Leaves whose gradients were final early are out of order.
        Some(_) => entries.sort_unstable_by_key(|entry| entry.id),
        None => entries.reverse(),
    }
    Ok(entries)
}

/// Passes the gradient of a call's output on to its inputs. If the output was recomputed for that, returns its new
/// node, through which the gradient continues.
fn pass<B: Backend>(
    pending: &mut Frontier<B>,
    node: &Arc<Node<B>>,
    call: &Call<B>,
    gradient: Tensor<B>,
    create_graph: bool,
) -> Result<Option<Arc<Node<B>>>> {
    if let Rule::Checkpoint(segment) = &call.rule {
        if !create_graph && let Some(gradient) = segment.ahead(&gradient)? {
            if let Some(parent) = &call.inputs[0].node {
                add(pending, parent, Accumulated::whole(gradient))?;
            }
            return Ok(None);
        }
        // The nodes of the segment are newer than all pending ones, so they come next.
        let output = segment.recompute(call.restore(node, true))?;
        return add_through(pending, &output, gradient);
    }
    let saved = call.restore(node, create_graph);
    match rules::apply(call, &saved, gradient, create_graph)? {
        Passed::Inputs(gradients) => {
            for (edge, gradient) in call.inputs.iter().zip(gradients) {
                if let (Some(parent), Some(gradient)) = (&edge.node, gradient) {
                    add(pending, parent, Accumulated::whole(gradient))?;
                }
            }
            Ok(None)
        }
        Passed::Stretch { axis, start, gradient } => {
            let edge = &call.inputs[0];
            if let Some(parent) = &edge.node {
                let stretch = Accumulated::stretch(axis, edge.shape[axis], start, gradient);
                add(pending, parent, stretch)?;
            }
            Ok(None)
        }
        Passed::Through(output, gradient) => add_through(pending, &output, gradient),
    }
}

fn add<B: Backend>(pending: &mut Frontier<B>, node: &Arc<Node<B>>, gradient: Accumulated<B>) -> Result<()> {
    match pending.entry(node.id()) {
        Entry::Vacant(entry) => {
            entry.insert(Box::new(Pending {
                node: Arc::clone(node),
                gradient,
            }));
            Ok(())
        }
        Entry::Occupied(mut entry) => entry.get_mut().gradient.add(gradient),
    }
}

/// Passes the gradient to the node of a recomputed output, and returns this node.
fn add_through<B: Backend>(
    pending: &mut Frontier<B>,
    output: &Tensor<B>,
    gradient: Tensor<B>,
) -> Result<Option<Arc<Node<B>>>> {
    let again = output.graph_node();
    if let Some(again) = again {
        add(pending, again, Accumulated::whole(gradient))?;
    }
    Ok(again.cloned())
}

/// The gradients that a rule returns, one for each input, in order; `None` for an input that needs none.
pub(crate) type InputGradients<B> = SmallVec<[Option<Tensor<B>>; 2]>;
