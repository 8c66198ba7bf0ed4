//! Builds a luminal graph of recorded nodes, executes it, and takes it apart again.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use luminal::graph::{Graph, NodeIndex};
use luminal::op;
use luminal::prelude::MatMul2D;
use luminal::shape::ShapeTracker;
use luminal::shape::symbolic::Expression;
use luminal::tensor::Tensor;
use polygrad_core::{Error, ErrorKind, Layout, Shape};

use crate::kernel::{Kernel, KernelNode, Pick, Source, caught};
use crate::pending::Failure;
use crate::primitive::Primitive;
use crate::tensor::{LuminalTensor, Node, Recorded, Work};
use crate::tracker;
use crate::values::Values;

/// A node in a run.
pub(crate) struct Entry {
    node: Arc<Node>,
    inputs: Vec<LuminalTensor>,
    op: Taken,
}

/// The op of an entry. Kernels move into the graph and come back, even if it fails.
enum Taken {
    Primitive(Primitive),
    Kernel(Rc<Kernel>),
}

/// Runs nodes and the nodes that they need. Keeps the values of those that have other handles. Only one run may be
/// active at a time.
pub(crate) fn run(mut roots: Vec<Arc<Node>>) {
    // Each iteration finishes all nodes, or finds at least one that fails.
    while roots.iter().any(|node| node.done().is_none()) {
        let weak: Vec<_> = roots.iter().map(Arc::downgrade).collect();
        let entries = needed(roots);
        let failed = attempt(entries);
        if !failed {
            return;
        }
        roots = weak.iter().filter_map(std::sync::Weak::upgrade).collect();
    }
}

/// The nodes that are needed and not done, each after its inputs, with the recorded work taken out of them.
pub(crate) fn needed(roots: Vec<Arc<Node>>) -> Vec<Entry> {
    let mut known: HashSet<*const Node> = HashSet::new();
    let mut order: Vec<Entry> = Vec::new();
    let mut open: Vec<(Entry, usize)> = Vec::new();
    let mut visit = |node: &Arc<Node>| -> Option<Entry> {
        if node.done().is_some() || !known.insert(Arc::as_ptr(node)) {
            return None;
        }
        let Some(Work { op, inputs }) = node.take() else {
            let lost = Error::new(ErrorKind::DeviceError, "a recorded op was lost");
            node.finish(Err(Failure::new(&lost)));
            return None;
        };
        let op = match op {
            Recorded::Primitive(op) => Taken::Primitive(op),
            Recorded::Kernel(kernel) => Taken::Kernel(Rc::new(kernel)),
        };
        Some(Entry {
            node: Arc::clone(node),
            inputs,
            op,
        })
    };
    for root in roots {
        open.extend(visit(&root).map(|entry| (entry, 0)));
        // An explicit stack instead of recursion, since chains may be long.
        while let Some((entry, next)) = open.last_mut() {
            let input = entry.inputs.get(*next).map(|input| Arc::clone(input.node()));
            *next += 1;
            match input {
                Some(input) => open.extend(visit(&input).map(|entry| (entry, 0))),
                None => order.extend(open.pop().map(|(entry, _)| entry)),
            }
        }
    }
    order
}

/// Builds and executes one graph. Returns whether anything failed, in which case the nodes that do not depend on it
/// remain to be run.
fn attempt(entries: Vec<Entry>) -> bool {
    let (entries, mut failed) = without_failed(entries);
    if entries.is_empty() {
        return failed;
    }
    let running = Rc::new(Cell::new(None));
    let held = held(&entries);
    let mut builder = Builder::new(&entries, Rc::clone(&running));
    let executed = catch_unwind(AssertUnwindSafe(|| {
        for (place, entry) in entries.iter().enumerate() {
            builder.add(place, entry, held[place]);
        }
        builder.graph.execute();
    }));
    for (place, entry) in entries.iter().enumerate() {
        if held[place]
            && let Some(values) = builder.values(place, entry)
        {
            entry.node.finish(Ok(values));
        }
    }
    // The graph holds kernels, which must return to nodes that are not done.
    drop(builder);
    if let Err(panic) = executed {
        failed = true;
        let failure = Failure::new(&caught(panic));
        match running.get() {
            Some(place) => entries[place].node.finish(Err(failure)),
            None => entries.iter().for_each(|entry| entry.node.finish(Err(failure.clone()))),
        }
    }
    put_back(entries);
    failed
}

/// Removes the nodes whose inputs have failed: they fail, too.
fn without_failed(entries: Vec<Entry>) -> (Vec<Entry>, bool) {
    let mut left = Vec::with_capacity(entries.len());
    let mut any = false;
    for entry in entries {
        let failure = entry
            .inputs
            .iter()
            .find_map(|input| input.node().done()?.as_ref().err());
        match failure.cloned() {
            Some(failure) => {
                any = true;
                entry.node.finish(Err(failure));
            }
            None => left.push(entry),
        }
    }
    (left, any)
}

/// Which nodes have handles outside this run, and thus keep their values. If another thread drops or takes a handle
/// meanwhile, a value is kept unnecessarily or computed again, but never wrong.
fn held(entries: &[Entry]) -> Vec<bool> {
    let mut inside: HashMap<*const Node, usize> = HashMap::new();
    for input in entries.iter().flat_map(|entry| &entry.inputs) {
        *inside.entry(Arc::as_ptr(input.node())).or_default() += 1;
    }
    let held = |entry: &Entry| {
        let inside = inside.get(&Arc::as_ptr(&entry.node)).copied().unwrap_or(0);
        Arc::strong_count(&entry.node) > inside + 1
    };
    entries.iter().map(held).collect()
}

/// Returns the recorded work to nodes that are not done.
fn put_back(entries: Vec<Entry>) {
    for Entry { node, inputs, op } in entries {
        if node.done().is_some() {
            continue;
        }
        let op = match op {
            Taken::Primitive(op) => Recorded::Primitive(op),
            Taken::Kernel(kernel) => match Rc::try_unwrap(kernel) {
                Ok(kernel) => Recorded::Kernel(kernel),
                Err(_) => unreachable!("the graph, which had the other reference, is gone"),
            },
        };
        node.put_back(Work { op, inputs });
    }
}

/// A graph that is being built.
struct Builder {
    graph: Graph,
    /// The graph's node for each output of each entry.
    outputs: Vec<Vec<NodeIndex>>,
    places: HashMap<*const Node, usize>,
    /// Values that exist before the graph runs, by node and output.
    loaded: HashMap<(*const Node, u8), NodeIndex>,
    running: Rc<Cell<Option<usize>>>,
}

impl Builder {
    fn new(entries: &[Entry], running: Rc<Cell<Option<usize>>>) -> Self {
        let places = entries.iter().enumerate();
        Self {
            graph: Graph::new(),
            outputs: Vec::with_capacity(entries.len()),
            places: places.map(|(place, entry)| (Arc::as_ptr(&entry.node), place)).collect(),
            loaded: HashMap::new(),
            running,
        }
    }

    fn add(&mut self, place: usize, entry: &Entry, held: bool) {
        let node = match &entry.op {
            Taken::Primitive(op) => self.add_primitive(*op, &entry.inputs),
            Taken::Kernel(kernel) => self.add_kernel(place, kernel, &entry.inputs),
        };
        let outputs = match entry.node.outputs() {
            1 => vec![node],
            many => (0..many as u8)
                .map(|output| self.graph.add_op(Pick).input(node, output, row(1)).finish())
                .collect(),
        };
        if held {
            self.graph.no_delete.extend(outputs.iter().copied());
        }
        self.outputs.push(outputs);
    }

    /// The graph's node for an input that the graph computes.
    fn edge(&self, input: &LuminalTensor) -> Option<NodeIndex> {
        let place = self.places.get(&Arc::as_ptr(input.node()))?;
        Some(self.outputs[*place][usize::from(input.output())])
    }

    fn add_kernel(&mut self, place: usize, kernel: &Rc<Kernel>, inputs: &[LuminalTensor]) -> NodeIndex {
        let source = |input: &LuminalTensor| match input.known_values() {
            Some(values) => Source::Known(values.clone()),
            None => Source::Edge,
        };
        let node = KernelNode {
            kernel: Rc::clone(kernel),
            inputs: inputs.iter().map(|input| (source(input), *input.layout())).collect(),
            place,
            running: Rc::clone(&self.running),
        };
        let edges: Vec<NodeIndex> = inputs.iter().filter_map(|input| self.edge(input)).collect();
        let mut op = self.graph.add_op(node);
        for edge in edges {
            op = op.input(edge, 0, row(1));
        }
        op.finish()
    }

    fn add_primitive(&mut self, op: Primitive, inputs: &[LuminalTensor]) -> NodeIndex {
        let edges: Vec<(NodeIndex, ShapeTracker)> = inputs
            .iter()
            .map(|input| (self.edge(input).unwrap_or_else(|| self.load(input)), tracker_of(input)))
            .collect();
        let mut new = match op {
            Primitive::Add => self.graph.add_op(op::Add),
            Primitive::Mul => self.graph.add_op(op::Mul),
            Primitive::Recip => self.graph.add_op(op::Recip),
            Primitive::Sqrt => self.graph.add_op(op::Sqrt),
            Primitive::Sin => self.graph.add_op(op::Sin),
            Primitive::Log2 => self.graph.add_op(op::Log2),
            Primitive::Sum(axis) => self.graph.add_op(op::SumReduce(axis)),
            Primitive::Product => self.graph.add_op(MatMul2D),
        };
        for (node, tracker) in edges {
            new = new.input(node, 0, tracker);
        }
        new.finish()
    }

    /// Puts existing values into the graph, as a copy, since luminal's ops own their operands.
    fn load(&mut self, input: &LuminalTensor) -> NodeIndex {
        let key = (Arc::as_ptr(input.node()), input.output());
        if let Some(node) = self.loaded.get(&key) {
            return *node;
        }
        let node = self.graph.add_op(Pick).finish();
        if let Some(Values::F32(values)) = input.known_values() {
            self.graph.set_tensor(node, 0, Tensor::new(Vec::clone(values)));
        }
        self.loaded.insert(key, node);
        node
    }

    /// Moves the computed values of an entry out of the graph; `None` if the run did not get that far.
    fn values(&mut self, place: usize, entry: &Entry) -> Option<Vec<Values>> {
        let outputs = self.outputs.get(place)?;
        if !outputs.iter().all(|&node| self.graph.get_tensor_ref(node, 0).is_some()) {
            return None;
        }
        debug_assert_eq!(outputs.len(), entry.node.outputs());
        let taken = outputs
            .iter()
            .map(|&node| Values::from_graph(self.graph.tensors.remove(&(node, 0))?));
        taken.collect()
    }
}

/// A tracker that only tells the number of elements.
fn row(len: usize) -> ShapeTracker {
    ShapeTracker::new(&[Expression::from(len)])
}

fn tracker_of(input: &LuminalTensor) -> ShapeTracker {
    let whole = || {
        let row = Layout::contiguous(Shape::from([input.memory_len()]));
        tracker::of(&row, input.memory_len())
    };
    match tracker::of(input.layout(), input.memory_len()).or_else(whole) {
        Some(tracker) => tracker,
        None => unreachable!("primitives are recorded on layouts that luminal takes"),
    }
}
