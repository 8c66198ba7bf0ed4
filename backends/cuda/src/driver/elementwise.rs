//! Programs of element-wise steps.

use polygrad_core::compute::{DevicePtr, DeviceView, Elementwise, ElementwiseProgram, Step};
use polygrad_core::{DType, Element, Error, Result, Scalar, Shape, dispatch_dtype};

use super::memory::{Space, shape_of};
use super::queue::Queue;
use crate::program::{self, Access};
use crate::source::{Args, Source};
use crate::strides::Axes;

/// The most inputs and outputs of a program: their strides must fit among a kernel's arguments.
pub(super) const MAX_VIEWS: usize = 40;

/// See [`polygrad_core::compute::ComputeBackend::elementwise`].
pub(super) fn elementwise(queue: &Queue, space: &Space<'_>, call: &Elementwise<'_>) -> Result<()> {
    call.check()?;
    let mut addresses = Vec::with_capacity(call.inputs.len() + call.outputs.len());
    for view in call.inputs {
        addresses.push(space.view(view)?);
    }
    for view in call.outputs {
        addresses.push(space.target(view)?);
    }
    if call.shape.numel() == 0 || call.outputs.is_empty() {
        return Ok(());
    }
    at(queue, call, &addresses)
}

/// Runs a program whose views begin at these addresses.
pub(super) fn at(queue: &Queue, call: &Elementwise<'_>, addresses: &[u64]) -> Result<()> {
    let count = call.shape.numel();
    let layouts: Vec<_> = call
        .inputs
        .iter()
        .chain(call.outputs)
        .map(|view| &view.layout)
        .collect();
    let axes = Axes::of(&call.shape, &layouts);
    let access: Vec<_> = (0..layouts.len())
        .map(|view| {
            if axes.is_row(view) {
                Access::Row
            } else {
                Access::Strided
            }
        })
        .collect();
    let mut args = Args::default().push(count).all(&axes.dims);
    for (strides, _) in axes
        .strides
        .iter()
        .zip(&access)
        .filter(|&(_, &access)| access == Access::Strided)
    {
        args = args.all(strides);
    }
    args = args.all(addresses);
    for (&scalar, &dtype) in call.scalars.iter().zip(call.program.scalars()) {
        args = args.push(bits(scalar, dtype));
    }
    let source = Source::of_program(call.program, axes.rank(), access, queue.block());
    let blocks = (count as u64).div_ceil(u64::from(queue.block() * program::EACH));
    queue.launch(source, blocks, queue.block(), &args)
}

/// The bits of a number in a dtype.
pub(super) fn bits(scalar: Scalar, dtype: DType) -> u64 {
    let mut bytes = [0; 8];
    dispatch_dtype!(dtype, T => {
        let value = <T as Element>::from_scalar(scalar);
        bytes[..dtype.size()].copy_from_slice(bytemuck::bytes_of(&value));
    });
    u64::from_le_bytes(bytes)
}

/// Fills a view with one value.
pub(super) fn fill(queue: &Queue, space: &Space<'_>, view: &DeviceView, value: Scalar) -> Result<()> {
    let mut program = ElementwiseProgram::default();
    let scalar = program.scalar(view.dtype);
    program.output(scalar);
    let run = Elementwise {
        program: &program,
        shape: *view.shape(),
        inputs: &[],
        scalars: &[value],
        outputs: &[*view],
    };
    elementwise(queue, space, &run)
}

/// Copies and converts between two views whose elements begin at these addresses.
pub(super) fn convert(queue: &Queue, shape: Shape, from: (&DeviceView, u64), to: (&DeviceView, u64)) -> Result<()> {
    let mut program = ElementwiseProgram::default();
    let x = program.input(from.0.dtype);
    let y = program.push(Step::Cast(x, to.0.dtype))?;
    program.output(y);
    let run = Elementwise {
        program: &program,
        shape,
        inputs: &[*from.0],
        scalars: &[],
        outputs: &[*to.0],
    };
    at(queue, &run, &[from.1, to.1])
}

/// Converts contiguous elements.
pub(super) fn narrow(queue: &Queue, from: (DType, u64), to: (DType, u64), count: usize) -> Result<()> {
    let shape = shape_of(&[count])?;
    // The addresses are passed separately.
    let [x, y] = [from.0, to.0].map(|dtype| DeviceView::contiguous(DevicePtr::NULL, dtype, shape));
    convert(queue, shape, (&x, from.1), (&y, to.1))
}

/// Checks that a dtype is a float.
pub(super) fn floats(dtype: DType) -> Result<()> {
    match dtype.is_float() {
        true => Ok(()),
        false => Err(Error::dtype(format!("not defined for {dtype}"))),
    }
}
