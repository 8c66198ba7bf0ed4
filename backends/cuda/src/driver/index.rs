//! Indexing: gather and scatter.

use polygrad_core::compute::{DevicePtr, DeviceView, Gather, Scatter};
use polygrad_core::{DType, Error, Layout, Result};

use super::elementwise;
use super::memory::Space;
use super::queue::Queue;
use crate::source::{Args, File, file};
use crate::strides::Axes;

const KERNEL: File = file!("index");

/// Checks that an index fits the tensor that it selects from.
fn check(data: &DeviceView, axis: usize, index: &DeviceView) -> Result<()> {
    let (shape, names) = (data.shape(), index.shape());
    if index.dtype != DType::I64 {
        return Err(Error::dtype(format!("an index is i64, got {}", index.dtype)));
    }
    if axis >= shape.rank() {
        return Err(Error::out_of_range(format!("axis {axis} of shape {shape}")));
    }
    let fits = names.rank() == shape.rank() && (0..shape.rank()).all(|i| i == axis || names[i] <= shape[i]);
    if !fits {
        return Err(Error::shape(format!(
            "an index of shape {names} for axis {axis} of shape {shape}"
        )));
    }
    Ok(())
}

struct Run<'a> {
    queue: &'a Queue,
    mode: u32,
    axis: usize,
    data: (&'a DeviceView, u64),
    index: (&'a DeviceView, u64),
    other: (&'a DeviceView, u64),
}

impl Run<'_> {
    fn launch(&self) -> Result<()> {
        let (shape, axis) = (self.index.0.shape(), self.axis);
        // Along the axis the index decides the position, so the data's stride there is 0.
        let mut still: Vec<isize> = self.data.0.layout.strides().to_vec();
        let stride = std::mem::replace(&mut still[axis], 0);
        let others = [self.index.0.layout.strides(), self.other.0.layout.strides()];
        let axes = Axes::new(shape, &[&still, others[0], others[1]]);
        let source = self
            .queue
            .source(KERNEL, self.data.0.dtype)
            .define("MODE", self.mode)
            .define("RANK", axes.rank());
        let args = Args::default()
            .all(&[
                self.data.1,
                self.index.1,
                self.other.1,
                self.queue.reports.address(&self.queue.runtime)?,
            ])
            .push(shape.numel())
            .push(self.data.0.shape()[axis])
            .push(stride)
            .all(&axes.dims)
            .all(&axes.strides[0])
            .all(&axes.strides[1])
            .all(&axes.strides[2]);
        self.queue.launch_each(source, shape.numel(), &args)
    }
}

/// See [`polygrad_core::compute::ComputeBackend::gather`].
pub(super) fn gather(queue: &Queue, space: &Space<'_>, call: &Gather) -> Result<()> {
    check(&call.input, call.axis, &call.index)?;
    let output = DeviceView::contiguous(call.output, call.input.dtype, *call.index.shape());
    let run = Run {
        queue,
        mode: 0,
        axis: call.axis,
        data: (&call.input, space.view(&call.input)?),
        index: (&call.index, space.view(&call.index)?),
        other: (&output, space.view(&output)?),
    };
    if call.index.shape().numel() == 0 {
        return Ok(());
    }
    run.launch()
}

/// See [`polygrad_core::compute::ComputeBackend::scatter`] and [`polygrad_core::compute::ComputeBackend::scatter_add`].
pub(super) fn scatter(queue: &Queue, space: &Space<'_>, call: &Scatter, add: bool) -> Result<()> {
    let dtype = call.target.dtype;
    check(&call.target, call.axis, &call.index)?;
    if call.source.shape() != call.index.shape() {
        return Err(Error::shape(format!(
            "a source of shape {} for an index of shape {}",
            call.source.shape(),
            call.index.shape()
        )));
    }
    if call.source.dtype != dtype || (add && dtype == DType::Bool) {
        return Err(Error::dtype(format!(
            "a source of {} for a target of {dtype}",
            call.source.dtype
        )));
    }
    let run = Run {
        queue,
        mode: 1 + u32::from(add),
        axis: call.axis,
        data: (&call.target, space.target(&call.target)?),
        index: (&call.index, space.view(&call.index)?),
        other: (&call.source, space.view(&call.source)?),
    };
    if call.index.shape().numel() == 0 {
        return Ok(());
    }
    match dtype {
        DType::F16 | DType::BF16 if add => wide(&run),
        _ => run.launch(),
    }
}

/// Adds in f32, and rounds once.
fn wide(run: &Run<'_>) -> Result<()> {
    let queue = run.queue;
    let (target, source) = (run.data.0, run.other.0);
    let (shape, added) = (*target.shape(), *source.shape());
    let sums = queue.scratch(shape.numel() * 4)?;
    let terms = queue.scratch(added.numel() * 4)?;
    // The addresses are passed separately.
    let sums_view = DeviceView::new(DevicePtr::NULL, DType::F32, Layout::contiguous(shape));
    let terms_view = DeviceView::new(DevicePtr::NULL, DType::F32, Layout::contiguous(added));
    elementwise::convert(queue, shape, run.data, (&sums_view, sums.address()))?;
    elementwise::convert(queue, added, run.other, (&terms_view, terms.address()))?;
    let in_f32 = Run {
        data: (&sums_view, sums.address()),
        other: (&terms_view, terms.address()),
        ..*run
    };
    in_f32.launch()?;
    elementwise::convert(queue, shape, (&sums_view, sums.address()), run.data)?;
    sums.release()?;
    terms.release()
}
