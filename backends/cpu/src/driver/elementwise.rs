//! Programs of element-wise steps, computed block by block, so that intermediate values stay in the cache.

use std::sync::OnceLock;

use polygrad_core::compute::{Elementwise, ElementwiseProgram, Step, Value};
use polygrad_core::{DType, Error, Result, Shape, dispatch_dtype};

use super::claims::Claims;
use super::memory::Place;
use super::steps::{self, Loop};
use super::strided::Strided;
use crate::CpuDevice;
use crate::buffers::Buffer;

/// Elements that go through all steps at a time: a few blocks of eight-byte elements fit the second-level cache, of
/// four-byte elements the first.
const BLOCK: usize = 2048;

/// See [`polygrad_core::compute::ComputeBackend::elementwise`].
pub(super) fn elementwise(memory: &Claims<'_>, call: &Elementwise<'_>, device: CpuDevice) -> Result<()> {
    call.check()?;
    let program = call.program;
    let plan = Plan::new(program, device)?;
    let inputs: Vec<Place> = call.inputs.iter().map(|v| memory.place(v)).collect::<Result<_>>()?;
    let outputs: Vec<Place> = call.outputs.iter().map(|v| memory.target(v)).collect::<Result<_>>()?;
    memory.found();
    if call.shape.numel() == 0 || outputs.is_empty() {
        return Ok(());
    }
    // An input that overlaps an output with another layout is read before anything is written. If both layouts are
    // equal, each block is read before it is written.
    let mut kept = Vec::new();
    let mut sources = Vec::with_capacity(inputs.len());
    for input in &inputs {
        let over = || outputs.iter().filter(|output| input.meets(output));
        let (contiguous, size) = (input.layout().is_contiguous(), input.dtype().size());
        let source = if over().any(|output| !input.equals(output)) {
            let copy = input.raw(device).copied()?;
            let source = Source {
                memory: Strided::new(copy.ptr(), size, &copy.layout()),
                direct: true,
                dtype: input.dtype(),
            };
            kept.push(copy);
            source
        } else {
            Source {
                memory: Strided::new(input.first(), size, input.layout()),
                direct: contiguous && over().next().is_none(),
                dtype: input.dtype(),
            }
        };
        sources.push(source);
    }
    let mut scalars = Vec::with_capacity(call.scalars.len());
    for (&scalar, &dtype) in call.scalars.iter().zip(program.scalars()) {
        let mut bytes = [0; 8];
        dispatch_dtype!(dtype, T => {
            let value = <T as polygrad_core::Element>::from_scalar(scalar);
            bytes[..dtype.size()].copy_from_slice(bytemuck::bytes_of(&value));
        });
        scalars.push((bytes, dtype));
    }
    let targets: Vec<Target> = (outputs.iter().zip(program.outputs()))
        .map(|(output, &value)| Target {
            memory: Strided::new(output.first(), output.dtype().size(), output.layout()),
            direct: output.layout().is_contiguous(),
            value,
        })
        .collect();
    let run = Run {
        plan: &plan,
        sources,
        scalars,
        targets,
    };
    run.all(&call.shape, &outputs, device)
}

/// A compiled program.
struct Plan {
    steps: Vec<(Loop, Vec<Value>)>,
    /// Approximate nanoseconds per element.
    ns: f32,
    /// The block of the scratch memory that each step writes to.
    slots: Vec<usize>,
    /// Number of these blocks.
    room: usize,
}

impl Plan {
    fn new(program: &ElementwiseProgram, device: CpuDevice) -> Result<Self> {
        let level = device.vectors();
        let mut steps = Vec::with_capacity(program.steps().len());
        let mut ns = 0.2;
        for &(step, _) in program.steps() {
            let operands: Vec<Value> = step.operands().collect();
            let of = operands.get(usize::from(matches!(step, Step::Select(..))));
            let dtype = of
                .and_then(|&value| program.dtype(value))
                .ok_or_else(|| Error::invalid("a step without operands"))?;
            let (run, cost) = steps::compile(step, dtype, level).map_err(|error| error.with_op(program.name()))?;
            ns += cost;
            steps.push((run, operands));
        }
        let (slots, room) = slots(program);
        Ok(Self { steps, ns, slots, room })
    }
}

/// Assigns a block to each step; a block is reused once its step's result is no longer needed.
fn slots(program: &ElementwiseProgram) -> (Vec<usize>, usize) {
    let count = program.steps().len();
    let mut last: Vec<usize> = (0..count).collect();
    for (i, (step, _)) in program.steps().iter().enumerate() {
        for value in step.operands() {
            if let Value::Step(k) = value {
                last[usize::from(k)] = i;
            }
        }
    }
    for value in program.outputs() {
        if let Value::Step(k) = *value {
            last[usize::from(k)] = usize::MAX;
        }
    }
    let (mut slots, mut free, mut room) = (Vec::with_capacity(count), Vec::new(), 0);
    for i in 0..count {
        // A step does not write to a block that it reads.
        let slot = free.pop().unwrap_or_else(|| {
            room += 1;
            room - 1
        });
        slots.push(slot);
        free.extend((0..=i).filter(|&k| last[k] == i).map(|k| slots[k]));
    }
    (slots, room)
}

struct Source {
    memory: Strided,
    /// Whether steps read the input in place.
    direct: bool,
    dtype: DType,
}

struct Target {
    memory: Strided,
    direct: bool,
    value: Value,
}

struct Run<'a> {
    plan: &'a Plan,
    sources: Vec<Source>,
    scalars: Vec<([u8; 8], DType)>,
    targets: Vec<Target>,
}

impl Run<'_> {
    fn all(&self, shape: &Shape, outputs: &[Place], device: CpuDevice) -> Result<()> {
        let n = shape.numel();
        let apart = outputs
            .iter()
            .enumerate()
            .all(|(i, a)| outputs[..i].iter().all(|b| !a.meets(b)));
        if !apart {
            // Several elements may share memory, which two threads must not write.
            return self.range(0, n);
        }
        let failed = OnceLock::new();
        device.split(n, self.plan.ns, BLOCK, |start, end| {
            if let Err(error) = self.range(start, end) {
                let _ = failed.set(error);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Computes a range of elements.
    fn range(&self, start: usize, end: usize) -> Result<()> {
        let block = BLOCK.min(end - start);
        let bytes = (block * 8).next_multiple_of(64);
        let (inputs, scalars) = (self.sources.len(), self.scalars.len());
        let scratch = Buffer::alloc((inputs + scalars + self.plan.room) * bytes)?;
        let at = |i: usize| scratch.as_ptr().wrapping_add(i * bytes);
        for (i, (value, dtype)) in self.scalars.iter().enumerate() {
            let value = Strided::everywhere(value.as_ptr(), dtype.size());
            // SAFETY: the number is readable, and each block of the scratch memory has room for `block` elements.
            unsafe { value.read(0, block, at(inputs + i)) };
        }
        let mut from: Vec<*const u8> = (0..inputs).map(|i| at(i).cast_const()).collect();
        let mut made: Vec<*mut u8> = self
            .plan
            .slots
            .iter()
            .map(|&slot| at(inputs + scalars + slot))
            .collect();
        let last = self.plan.steps.len().checked_sub(1);
        let direct = self
            .targets
            .iter()
            .position(|target| target.direct && last.is_some_and(|last| target.value == Value::Step(last as u16)));
        for first in (start..end).step_by(block.max(1)) {
            let n = block.min(end - first);
            for (i, source) in self.sources.iter().enumerate() {
                // SAFETY: the elements are inside their allocation, and the scratch memory has room for them.
                unsafe { source.load(first, n, first == start, at(i), &mut from[i]) };
            }
            if let (Some(direct), Some(last)) = (direct, last) {
                made[last] = self.targets[direct].memory.nth(first);
            }
            let find = |value: Value, made: &[*mut u8]| match value {
                Value::Input(i) => from[usize::from(i)],
                Value::Scalar(i) => at(inputs + usize::from(i)).cast_const(),
                Value::Step(i) => made[usize::from(i)].cast_const(),
            };
            for (i, (step, operands)) in self.plan.steps.iter().enumerate() {
                let mut read = [std::ptr::null(); 3];
                for (to, &value) in read.iter_mut().zip(operands) {
                    *to = find(value, &made);
                }
                step(read, made[i], n);
            }
            for (i, target) in self.targets.iter().enumerate() {
                if Some(i) != direct {
                    // SAFETY: the elements are inside their allocation; the values are in scratch memory, in an input
                    // that no output overlaps, or in another output.
                    unsafe { target.memory.write(first, n, find(target.value, &made)) };
                }
            }
        }
        Ok(())
    }
}

impl Source {
    /// Sets `from` to `n` elements from number `first` on: in place, or in the block of scratch memory at `to`.
    ///
    /// # Safety
    /// The elements must be readable, and the block large enough.
    unsafe fn load(&self, first: usize, n: usize, is_first: bool, to: *mut u8, from: &mut *const u8) {
        if self.direct && self.dtype != DType::Bool {
            *from = self.memory.nth(first);
            return;
        }
        *from = to;
        if self.memory.is_one_value() && !is_first {
            return;
        }
        // SAFETY: by the caller.
        unsafe { self.memory.read(first, n, to) };
        if self.dtype == DType::Bool {
            // SAFETY: the bytes were just written.
            let bytes = unsafe { std::slice::from_raw_parts_mut(to, n) };
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }
}
