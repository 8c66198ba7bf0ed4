//! The tensor: an output of a node, and a layout.
//!
//! A node is immutable except for two things that happen once: its values are set, and then its recorded work is
//! dropped. Both are behind `std`'s own synchronization, so a tensor is `Send` and `Sync` without unsafe code.
//! luminal's `Graph`, which is neither, lives inside one call of `run`.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use polygrad_core::{DType, HostTensor, Layout, Result, Scalar, Shape, room};

use crate::kernel::Kernel;
use crate::pending::{self, Failure};
use crate::primitive::Primitive;
use crate::support::typed;
use crate::values::{Item, Values, View};

/// A tensor in host memory that is computed when it is read. Clones and views share the computed values.
#[derive(Clone)]
pub struct LuminalTensor {
    node: Arc<Node>,
    output: u8,
    dtype: DType,
    layout: Layout,
}

/// A node that has values, or will have them.
pub(crate) struct Node {
    /// Its recorded work; `None` once it is done.
    work: Mutex<Option<Work>>,
    done: OnceLock<Result<Vec<Values>, Failure>>,
    /// Number of elements of each output in memory.
    counts: Vec<usize>,
    thread: ThreadId,
}

/// The recorded work of a node.
pub(crate) struct Work {
    pub(crate) op: Recorded,
    pub(crate) inputs: Vec<LuminalTensor>,
}

pub(crate) enum Recorded {
    /// A luminal op.
    Primitive(Primitive),
    /// A custom node.
    Kernel(Kernel),
}

impl Node {
    pub(crate) fn done(&self) -> Option<&Result<Vec<Values>, Failure>> {
        self.done.get()
    }

    pub(crate) fn finish(&self, result: Result<Vec<Values>, Failure>) {
        // Only one run is active at a time, and it takes only nodes that are not done.
        let _ = self.done.set(result);
    }

    pub(crate) fn take(&self) -> Option<Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put_back(&self, work: Work) {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
    }

    pub(crate) fn outputs(&self) -> usize {
        self.counts.len()
    }

    /// The thread that recorded it.
    pub(crate) fn thread(&self) -> ThreadId {
        self.thread
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Without this, dropping a long chain would recurse as deep as the chain is long.
        let mut orphans: Vec<LuminalTensor> = self.take().map(|work| work.inputs).unwrap_or_default();
        while let Some(orphan) = orphans.pop() {
            if let Some(node) = Arc::into_inner(orphan.node) {
                orphans.extend(node.take().map(|work| work.inputs).unwrap_or_default());
            }
        }
    }
}

impl LuminalTensor {
    /// A tensor with known values: as many as the shape has elements, in row-major order.
    pub(crate) fn known(shape: Shape, dtype: DType, values: Values) -> Self {
        debug_assert_eq!(values.len(), shape.numel());
        let node = Node {
            work: Mutex::new(None),
            counts: vec![values.len()],
            done: OnceLock::from(Ok(vec![values])),
            thread: thread::current().id(),
        };
        Self {
            node: Arc::new(node),
            output: 0,
            dtype,
            layout: Layout::contiguous(shape),
        }
    }

    pub(crate) fn new<T: Item>(shape: Shape, values: Vec<T>) -> Self {
        Self::known(shape, T::DTYPE, Values::new(values))
    }

    /// A tensor that repeats one value, of which there is one in memory.
    pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType) -> Result<Self> {
        typed!("full", dtype, T => {
            let one = Self::new(Shape::SCALAR, vec![<T as polygrad_core::Element>::from_scalar(value)]);
            Ok(one.view(one.layout.expand(shape)))
        })
    }

    /// Records an op. Each output is contiguous and of its own shape and dtype.
    pub(crate) fn record(op: Recorded, inputs: Vec<Self>, outputs: &[(Shape, DType)]) -> Result<Vec<Self>> {
        for (shape, dtype) in outputs {
            check_room(shape.numel(), *dtype)?;
        }
        let bytes = outputs.iter().map(|(shape, dtype)| shape.numel() * dtype.size()).sum();
        let (node, made) = Self::outputs_of(Work { op, inputs }, outputs);
        pending::recorded(&node, bytes);
        Ok(made)
    }

    /// A new node, and a tensor for each of its outputs.
    fn outputs_of(work: Work, outputs: &[(Shape, DType)]) -> (Arc<Node>, Vec<Self>) {
        let node = Arc::new(Node {
            work: Mutex::new(Some(work)),
            done: OnceLock::new(),
            counts: outputs.iter().map(|(shape, _)| shape.numel()).collect(),
            thread: thread::current().id(),
        });
        let made = outputs.iter().enumerate().map(|(output, &(shape, dtype))| Self {
            node: Arc::clone(&node),
            output: output as u8,
            dtype,
            layout: Layout::contiguous(shape),
        });
        let made = made.collect();
        (node, made)
    }

    /// The same elements with another layout, which must not extend beyond them.
    pub(crate) fn view(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }

    /// Its whole memory, as one row.
    pub(crate) fn memory(&self) -> Result<Self> {
        Ok(self.view(Layout::contiguous(Shape::new(&[self.memory_len()])?)))
    }

    pub(crate) fn memory_len(&self) -> usize {
        self.node.counts[usize::from(self.output)]
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub(crate) fn output(&self) -> u8 {
        self.output
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether it has been computed.
    pub fn is_computed(&self) -> bool {
        self.node.done().is_some()
    }

    /// The values of its memory, if it has been computed.
    pub(crate) fn known_values(&self) -> Option<&Values> {
        match self.node.done() {
            Some(Ok(values)) => values.get(usize::from(self.output)),
            _ => None,
        }
    }

    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        let values = pending::read(self)?;
        let count = self.shape().numel();
        if self.layout.is_contiguous() && values.len() == count {
            return values.share(*self.shape());
        }
        let view = View {
            data: values.as_slice(),
            layout: self.layout,
        };
        typed!("to_host", self.dtype, T => HostTensor::new(*self.shape(), view.values::<T>()?.into_owned()))
    }
}

impl fmt::Debug for LuminalTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_computed() { "computed" } else { "recorded" };
        write!(f, "LuminalTensor({}{}, {state})", self.dtype, self.shape())
    }
}

/// Fails for a size that memory cannot hold before an op is recorded: luminal's own ops allocate without checking,
/// which would end the process.
fn check_room(count: usize, dtype: DType) -> Result<()> {
    const WORTH_ASKING: usize = 1 << 20;
    if count < WORTH_ASKING {
        return Ok(());
    }
    if count > i32::MAX as usize {
        let message = format!("{count} elements, where luminal counts in 32 bits");
        return Err(polygrad_core::Error::new(
            polygrad_core::ErrorKind::OutOfMemory,
            message,
        ));
    }
    room::<u8>(count * dtype.size()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::needed;

    /// A chain of sums too long for recursion on any stack; none of them runs while it is recorded.
    fn chain() -> LuminalTensor {
        let one = LuminalTensor::new(Shape::SCALAR, vec![1.0f32]);
        (0..LENGTH).fold(one.clone(), |x, _| {
            let work = Work {
                op: Recorded::Primitive(Primitive::Add),
                inputs: vec![x, one.clone()],
            };
            LuminalTensor::outputs_of(work, &[(Shape::SCALAR, DType::F32)])
                .1
                .remove(0)
        })
    }

    const LENGTH: usize = 1_000_000;

    #[test]
    fn a_chain_of_a_million_is_dropped() {
        drop(chain());
    }

    #[test]
    fn a_chain_of_a_million_is_walked() {
        let last = chain();
        assert_eq!(needed(vec![Arc::clone(last.node())]).len(), LENGTH);
    }
}
