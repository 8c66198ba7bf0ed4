//! Pooling.

use polygrad_core::compute::Pool2d;
use polygrad_core::{DType, Error, Result};

use super::floats;
use super::memory::{Space, shape_of};
use super::queue::Queue;
use crate::source::{Args, File, file};

const KERNEL: File = file!("pool");

/// See [`polygrad_core::compute::ComputeBackend::max_pool2d`] and
/// [`polygrad_core::compute::ComputeBackend::avg_pool2d`].
pub(super) fn pool2d(queue: &Queue, space: &Space<'_>, call: &Pool2d, largest: bool) -> Result<()> {
    let (params, shape) = (&call.params, shape_of(&call.input_shape)?);
    match largest {
        true if call.dtype == DType::Bool => return Err(Error::dtype("not defined for bool")),
        true => {}
        false => {
            floats(call.dtype)?;
            if params.dilation[..2] != [1, 1] {
                return Err(Error::invalid("dilation must be 1"));
            }
        }
    }
    let out = params.output_shape(&shape)?;
    let input = space.row(call.input, call.dtype, &shape)?;
    let output = space.row(call.output, call.dtype, &out)?;
    let positions = match largest {
        true => space.row(call.positions, DType::I64, &out)?,
        false => 0,
    };
    if out.numel() == 0 {
        return Ok(());
    }
    for axis in 0..2 {
        // With dilation, a window may skip a short input entirely.
        let sees = |at: usize| {
            let start = (at * params.stride[axis]).cast_signed() - params.padding[axis].cast_signed();
            (0..params.kernel[axis]).any(|tap| {
                let place = start + (tap * params.dilation[axis]).cast_signed();
                (0..shape[axis + 2].cast_signed()).contains(&place)
            })
        };
        if !(0..out[axis + 2]).all(sees) {
            return Err(Error::invalid(format!("a window sees no element of the input {shape}"))
                .with_hint("use less padding or dilation"));
        }
    }
    let source = queue.source(KERNEL, call.dtype).flag("LARGEST", largest);
    let pair = |values: [usize; 3]| [values[0], values[1]];
    let args = Args::default()
        .all(&[input, output, positions])
        .push(out.numel())
        .all(&[shape[2], shape[3], out[2], out[3]])
        .all(&pair(params.kernel))
        .all(&pair(params.stride))
        .all(&pair(params.padding))
        .all(&pair(params.dilation))
        .push(params.count_include_pad);
    queue.launch_each(source, out.numel(), &args)
}
