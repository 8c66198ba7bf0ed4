//! Nodes of ours in luminal's graphs.

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

/// A computation that luminal has no op for.
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

/// Records a node of ours with one output.
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

/// Where an input of a node comes from.
pub(crate) enum Source {
    /// It is there before the graph runs.
    Known(Values),
    /// The graph brings it, as the next of its inputs.
    Edge,
}

/// A kernel in a graph.
pub(crate) struct KernelNode {
    pub(crate) kernel: Rc<Kernel>,
    pub(crate) inputs: Vec<(Source, Layout)>,
    /// Its place in the run, and where it says that it is running.
    pub(crate) place: usize,
    pub(crate) running: Rc<Cell<Option<usize>>>,
}

impl fmt::Debug for KernelNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kernel.name)
    }
}

impl PartialEq for KernelNode {
    /// Two are never known to compute the same, so that no compiler merges them.
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
            // `Operator` has no errors. This unwinds to `run` without a word on the terminal.
            Err(error) => resume_unwind(Box::new(error.with_op(self.kernel.name))),
        }
    }
}

/// Hands on one output of a node that has several. luminal counts the readers of each output wrongly where the edges of
/// several alternate; with one of these for each output there is one reader each.
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
