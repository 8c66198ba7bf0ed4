//! Custom nodes in luminal's graphs.

use std::cell::Cell;
use std::fmt;
use std::panic::resume_unwind;
use std::rc::Rc;

use luminal::op::{InputTensor, Operator};
use luminal::shape::ShapeTracker;
use luminal::tensor::Tensor;
use polygrad_core::{DType, Error, Layout, Result, Shape};

use crate::tensor::{LuminalTensor, Recorded};
use crate::values::{Slice, Values, View, slice_of};

type Compute = dyn Fn(&[View<'_>]) -> Result<Vec<Tensor>> + Send + Sync;

/// A computation for which luminal has no op.
pub(crate) struct Kernel {
    name: &'static str,
    compute: Box<Compute>,
}

impl Kernel {
    pub(crate) fn new(
        name: &'static str,
        compute: impl Fn(&[View<'_>]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            compute: Box::new(compute),
        }
    }
}

/// Records a custom node with one output.
pub(crate) fn record<const N: usize>(
    name: &'static str,
    inputs: [&LuminalTensor; N],
    shape: Shape,
    dtype: DType,
    compute: impl Fn([View<'_>; N]) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<LuminalTensor> {
    let kernel = Kernel::new(name, move |views| match views.try_into() {
        Ok(views) => Ok(vec![compute(views)?]),
        Err(_) => unreachable!("as many views as inputs"),
    });
    let inputs = inputs.into_iter().cloned().collect();
    let mut made = LuminalTensor::record(Recorded::Kernel(kernel), inputs, &[(shape, dtype)])?;
    Ok(made.remove(0))
}

/// The source of a node's input.
pub(crate) enum Source {
    /// The values exist before the graph runs.
    Known(Values),
    /// The graph computes it, and passes it as the node's next input.
    Edge,
}

/// A kernel in a graph.
pub(crate) struct KernelNode {
    pub(crate) kernel: Rc<Kernel>,
    pub(crate) inputs: Vec<(Source, Layout)>,
    /// Its index in the run, and the cell in which it notes that it is running.
    pub(crate) place: usize,
    pub(crate) running: Rc<Cell<Option<usize>>>,
}

impl fmt::Debug for KernelNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kernel.name)
    }
}

impl PartialEq for KernelNode {
    /// Never equal, so that no compiler merges two nodes.
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Operator for KernelNode {
    fn process(&mut self, edges: Vec<(InputTensor<'_>, ShapeTracker)>) -> Vec<Tensor> {
        self.running.set(Some(self.place));
        let mut edges = edges.iter();
        let views = self.inputs.iter().map(|(source, layout)| {
            let data = match source {
                Source::Known(values) => Some(values.as_slice()),
                Source::Edge => edges.next().and_then(|(input, _)| slice_of(input.borrowed())),
            };
            View {
                data: data.unwrap_or(Slice::F32(&[])),
                layout: *layout,
            }
        });
        let views: Vec<View<'_>> = views.collect();
        match (self.kernel.compute)(&views) {
            Ok(outputs) => {
                self.running.set(None);
                outputs
            }
            // `Operator` has no errors. This unwinds to `run` without printing anything.
            Err(error) => resume_unwind(Box::new(error.with_op(self.kernel.name))),
        }
    }
}

/// Passes on one output of a node with several. luminal counts the readers of outputs wrongly if edges of several
/// outputs alternate; with one of these nodes per output, each has one reader.
#[derive(Debug)]
pub(crate) struct Pick;

impl PartialEq for Pick {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Operator for Pick {
    fn process(&mut self, edges: Vec<(InputTensor<'_>, ShapeTracker)>) -> Vec<Tensor> {
        edges.into_iter().map(|(input, _)| input.cloned()).collect()
    }
}

/// The error that a kernel unwound with, or the text of a panic.
pub(crate) fn caught(panic: Box<dyn std::any::Any + Send>) -> Error {
    match panic.downcast::<Error>() {
        Ok(error) => *error,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "no reason given".to_owned());
            Error::new(
                polygrad_core::ErrorKind::DeviceError,
                format!("luminal panicked: {text}"),
            )
        }
    }
}
