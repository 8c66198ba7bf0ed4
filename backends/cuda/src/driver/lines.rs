//! Ops along one axis of a view: positions of extremes, running sums, sorting.

use polygrad_core::compute::{ArgReduce, CumSum, DeviceView, Sort};
use polygrad_core::{ArgOp, DType, Error, Layout, Result};

use super::memory::Space;
use super::queue::Queue;
use crate::source::{Args, File, file};
use crate::strides::Axes;

const ARG_REDUCE: File = file!("arg_reduce");
const CUMSUM: File = file!("cumsum");
const SORT: File = file!("sort");

/// A view seen as lines along an axis.
struct Lines {
    count: usize,
    len: usize,
    stride: isize,
    out_stride: isize,
    /// The other axes, with the strides of the view and of a contiguous one of its shape.
    kept: Axes,
}

impl Lines {
    fn new(view: &DeviceView, axis: usize) -> Result<Self> {
        let shape = view.shape();
        if axis >= shape.rank() {
            return Err(Error::out_of_range(format!("axis {axis} of shape {shape}")));
        }
        let (strides, out) = (view.layout.strides(), Layout::contiguous(*shape));
        let others = || (0..shape.rank()).filter(|&other| other != axis);
        let dims: Vec<usize> = others().map(|axis| shape[axis]).collect();
        let of = |strides: &[isize]| -> Vec<isize> { others().map(|axis| strides[axis]).collect() };
        Ok(Self {
            count: dims.iter().product(),
            len: shape[axis],
            stride: strides[axis],
            out_stride: out.strides()[axis],
            kept: Axes::new(&dims, &[&of(strides), &of(out.strides())]),
        })
    }

    fn is_empty(&self) -> bool {
        self.count == 0 || self.len == 0
    }

    /// The kernel arguments that follow each kernel's own.
    fn args(&self, args: Args) -> Args {
        args.push(self.stride)
            .push(self.out_stride)
            .all(&self.kept.dims)
            .all(&self.kept.strides[0])
            .all(&self.kept.strides[1])
    }
}

/// See [`polygrad_core::compute::ComputeBackend::arg_reduce`].
pub(super) fn arg_reduce(queue: &Queue, space: &Space<'_>, call: &ArgReduce) -> Result<()> {
    let lines = Lines::new(&call.input, call.axis)?;
    let input = space.view(&call.input)?;
    let output = space.row(call.output, DType::I64, &[lines.count])?;
    if lines.count == 0 {
        return Ok(());
    }
    if lines.len == 0 {
        return Err(Error::invalid(format!("{} over no elements", call.op.name())));
    }
    let source = queue
        .source(ARG_REDUCE, call.input.dtype)
        .flag("LARGEST", call.op == ArgOp::Max)
        .define("KEPT", lines.kept.rank());
    let args = Args::default()
        .push(input)
        .push(output)
        .push(lines.count)
        .push(lines.len)
        .push(lines.stride)
        .all(&lines.kept.dims)
        .all(&lines.kept.strides[0]);
    queue.launch(source, lines.count as u64, queue.block(), &args)
}

/// See [`polygrad_core::compute::ComputeBackend::cumsum`].
pub(super) fn cumsum(queue: &Queue, space: &Space<'_>, call: &CumSum) -> Result<()> {
    let dtype = call.input.dtype;
    if dtype == DType::Bool {
        return Err(Error::dtype(format!("not defined for {dtype}")));
    }
    let lines = Lines::new(&call.input, call.axis)?;
    let input = space.view(&call.input)?;
    let output = space.row(call.output, dtype, call.input.shape())?;
    if lines.is_empty() {
        return Ok(());
    }
    let source = queue.source(CUMSUM, dtype).define("KEPT", lines.kept.rank());
    let args = Args::default()
        .push(input)
        .push(output)
        .push(lines.count)
        .push(lines.len);
    queue.launch(source, lines.count as u64, queue.block(), &lines.args(args))
}

/// See [`polygrad_core::compute::ComputeBackend::sort`].
pub(super) fn sort(queue: &Queue, space: &Space<'_>, call: &Sort) -> Result<()> {
    let dtype = call.input.dtype;
    let lines = Lines::new(&call.input, call.axis)?;
    let input = space.view(&call.input)?;
    let values = space.row(call.values, dtype, call.input.shape())?;
    let positions = space.row(call.positions, DType::I64, call.input.shape())?;
    if lines.is_empty() {
        return Ok(());
    }
    let too_large = || Error::unsupported("a sort of more elements than can be counted");
    let padded = lines.len.checked_next_power_of_two().ok_or_else(too_large)?;
    let slots = lines.count.checked_mul(padded).ok_or_else(too_large)?;
    let scratch = queue.scratch(slots.checked_mul(8).ok_or_else(too_large)?)?;
    let step = |step: u32, threads: usize, size: usize, distance: usize| {
        let source = queue
            .source(SORT, dtype)
            .define("STEP", step)
            .flag("DESCENDING", call.descending)
            .define("KEPT", lines.kept.rank());
        let args = Args::default()
            .all(&[input, scratch.address(), values, positions])
            .all(&[lines.count, lines.len, padded, size, distance]);
        queue.launch_each(source, threads, &lines.args(args))
    };
    step(0, slots, 0, 0)?;
    let mut size = 2;
    while size <= padded {
        let mut distance = size / 2;
        while distance > 0 {
            step(1, slots / 2, size, distance)?;
            distance /= 2;
        }
        size *= 2;
    }
    step(2, lines.count * lines.len, 0, 0)?;
    scratch.release()
}
