//! Reductions over axes of any view.

use polygrad_core::compute::{DeviceView, Reduce, ReduceAxes};
use polygrad_core::{Axes as Over, DType, Error, ReduceOp, Result};

use super::memory::{Space, shape_of};
use super::queue::Queue;
use crate::source::{Args, File, file};
use crate::strides::Axes;

const KERNEL: File = file!("reduce");

/// With at least this many results, each result is computed by one thread.
const COLUMNS: usize = 4096;
/// Lines up to this length are reduced by one thread, too.
const SHORT: usize = 32;

/// See [`polygrad_core::compute::ComputeBackend::reduce`].
pub(super) fn reduce(queue: &Queue, space: &Space<'_>, call: &Reduce) -> Result<()> {
    call.spans()?;
    let shape = shape_of(&[call.outer, call.len, call.inner])?;
    let axes = ReduceAxes {
        op: call.op,
        input: DeviceView::contiguous(call.input, call.dtype, shape),
        axes: Over::one(1),
        output: call.output,
    };
    reduce_axes(queue, space, &axes)
}

/// See [`polygrad_core::compute::ComputeBackend::reduce_axes`].
pub(super) fn reduce_axes(queue: &Queue, space: &Space<'_>, call: &ReduceAxes) -> Result<()> {
    let (shape, dtype) = (call.input.shape(), call.input.dtype);
    if let Some(axis) = call.axes.iter().find(|&axis| axis >= shape.rank()) {
        return Err(Error::out_of_range(format!("axis {axis} of shape {shape}")));
    }
    if !call.op.accepts(dtype) {
        return Err(Error::dtype(format!("{} is not defined for {dtype}", call.op.name())));
    }
    let kept = shape.reduced(call.axes, false);
    let input = space.view(&call.input)?;
    let output = space.row(call.output, dtype, &kept)?;
    if kept.numel() == 0 {
        return Ok(());
    }
    let len: usize = call.axes.iter().map(|axis| shape[axis]).product();
    if len == 0 && call.op.needs_elements() {
        return Err(Error::invalid(format!("{} over no elements", call.op.name())));
    }
    let strides = call.input.layout.strides();
    let part = |gone: bool| -> Axes {
        let axes: Vec<usize> = (0..shape.rank())
            .filter(|&axis| call.axes.contains(axis) == gone)
            .collect();
        let dims: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
        let strides: Vec<isize> = axes.iter().map(|&axis| strides[axis]).collect();
        Axes::new(&dims, &[&strides])
    };
    let run = Run {
        queue,
        op: call.op,
        dtype,
        outputs: kept.numel(),
        len,
    };
    run.all(input, output, &part(false), &part(true))
}

struct Run<'a> {
    queue: &'a Queue,
    op: ReduceOp,
    dtype: DType,
    outputs: usize,
    len: usize,
}

/// The arguments of one launch.
struct Pass {
    input: u64,
    output: u64,
    len: usize,
    chunks: usize,
    /// Whether the input, and the output, are states of partial sums.
    from: bool,
    to: bool,
}

impl Run<'_> {
    fn all(&self, input: u64, output: u64, kept: &Axes, gone: &Axes) -> Result<()> {
        let one = Pass {
            input,
            output,
            len: self.len,
            chunks: 1,
            from: false,
            to: false,
        };
        // Neighbouring threads take neighbouring results, so the reads of a warp are coalesced if each
        // thread has its own result.
        let aside = kept.strides[0].last() == Some(&1) && gone.strides[0].last() != Some(&1);
        if self.len <= SHORT || (aside && self.outputs >= COLUMNS) {
            return self.pass(&one, kept, gone, true);
        }
        let facts = self.queue.runtime.facts();
        let block = facts.block as usize;
        let wanted = (facts.busy as usize).div_ceil(self.outputs);
        let chunks = wanted.min(self.len / (block * 4)).min(1024);
        if chunks < 2 {
            return self.pass(&one, kept, gone, false);
        }
        // A state is at most two numbers.
        let scratch = self.queue.scratch(self.outputs * chunks * 16)?;
        let first = Pass {
            output: scratch.address(),
            chunks,
            to: true,
            ..one
        };
        self.pass(&first, kept, gone, false)?;
        let second = Pass {
            input: scratch.address(),
            output,
            len: chunks,
            chunks: 1,
            from: true,
            to: false,
        };
        let (lines, line) = (
            Axes::new(&[self.outputs], &[&[chunks.cast_signed()]]),
            Axes::new(&[chunks], &[&[1]]),
        );
        self.pass(&second, &lines, &line, chunks <= SHORT)?;
        scratch.release()
    }

    fn pass(&self, pass: &Pass, kept: &Axes, gone: &Axes, column: bool) -> Result<()> {
        let (op, start): (u32, &'static str) = match self.op {
            ReduceOp::Sum => (0, "0"),
            ReduceOp::Mean => (1, "0"),
            ReduceOp::Prod => (2, "1"),
            ReduceOp::Max => (3, extreme(self.dtype, false)),
            ReduceOp::Min => (4, extreme(self.dtype, true)),
            ReduceOp::Any => (5, "false"),
            ReduceOp::All => (6, "true"),
            _ => return Err(Error::unsupported("the CUDA driver does not know this reduction")),
        };
        let float = self.dtype.is_float();
        let source = self
            .queue
            .source(KERNEL, self.dtype)
            .define("OP", op)
            .define("START", start)
            .define(
                "PRODUCT(a, b)",
                if float { "(a) * (b)" } else { "(C)((u64)(a) * (u64)(b))" },
            )
            .flag("COLUMN", column)
            .flag("FROM", pass.from)
            .flag("TO", pass.to)
            .define("KEPT", kept.rank())
            .define("GONE", gone.rank());
        let chunk = pass.len.div_ceil(pass.chunks);
        let args = Args::default()
            .push(pass.input)
            .push(pass.output)
            .push(self.outputs)
            .push(pass.len)
            .push(pass.chunks)
            .push(chunk)
            .push(self.len)
            .all(&kept.dims)
            .all(&kept.strides[0])
            .all(&gone.dims)
            .all(&gone.strides[0]);
        match column {
            true => self.queue.launch_each(source, self.outputs, &args),
            false => {
                let blocks = self.outputs as u64 * pass.chunks as u64;
                self.queue.launch(source, blocks, self.queue.block(), &args)
            }
        }
    }
}

/// The identity of a minimum or maximum: the largest or smallest value of a dtype.
fn extreme(dtype: DType, largest: bool) -> &'static str {
    match (dtype, largest) {
        (DType::Bool, true) => "true",
        (DType::Bool, false) => "false",
        (DType::U8, true) => "255",
        (DType::U8, false) => "0",
        (DType::I32, true) => "2147483647",
        (DType::I32, false) => "(-2147483647 - 1)",
        (DType::I64, true) => "9223372036854775807ll",
        (DType::I64, false) => "(-9223372036854775807ll - 1)",
        (_, true) => "INFINITE_F32",
        (_, false) => "(-INFINITE_F32)",
    }
}
