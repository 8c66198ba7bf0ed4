//! Convolutions, as products of matrices whose elements are looked up where they lie.

use polygrad_core::compute::Conv2d;
use polygrad_core::{DType, Error, Result};

use super::floats;
use super::memory::Space;
use super::queue::Queue;
use super::reduce;
use crate::source::Args;

const KERNEL: &str = include_str!("../kernels/conv.cu");

/// Which of the three tensors is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Forward,
    InputGrad,
    WeightGrad,
}

/// Terms of a part of the weight's gradient, at least.
const PART: usize = 1024;

/// See [`polygrad_core::compute::ComputeBackend::conv2d_forward`] and its two gradients.
pub(super) fn conv2d(queue: &Queue, space: &Space<'_>, call: &Conv2d, variant: Variant) -> Result<()> {
    floats(call.dtype)?;
    let (spans, out) = (call.spans()?, call.output_shape()?);
    let input = space.span(call.input, call.dtype, spans[0])?;
    let weight = space.span(call.weight, call.dtype, spans[1])?;
    let output = space.span(call.output, call.dtype, spans[2])?;
    let [batch, channels, height, width] = call.input_shape;
    let [filters, _, kernel_h, kernel_w] = call.weight_shape;
    let (params, groups, window) = (&call.params, call.params.groups, kernel_h * kernel_w);
    let (per_in, per_out) = (channels / groups, filters / groups);
    // Rows, columns and terms for each group.
    let (to, [m, n, k]) = match variant {
        Variant::Forward => (output, [per_out, batch * out[2] * out[3], per_in * window]),
        Variant::InputGrad => (input, [per_in, batch * height * width, per_out * window]),
        Variant::WeightGrad => (weight, [per_out, per_in * window, batch * out[2] * out[3]]),
    };
    if m == 0 || n == 0 || groups == 0 {
        return Ok(());
    }
    // Half as many threads each way as a block is long, so that tests with small blocks take the same path.
    let each = 4usize;
    let side = (queue.block() as usize).isqrt().clamp(1, 16);
    let tile = side * each;
    let tiles = m.div_ceil(tile) as u64 * n.div_ceil(tile) as u64 * groups as u64;
    let splits = match variant {
        Variant::WeightGrad => {
            let wanted = u64::from(queue.runtime.facts().busy).div_ceil(tiles);
            usize::try_from(wanted).unwrap_or(1).min(k / PART).clamp(1, 256)
        }
        _ => 1,
    };
    let part = k.div_ceil(splits);
    let source = queue
        .source(call.dtype)
        .define("VARIANT", variant as u32)
        .define("TILE", tile)
        .define("EACH", each)
        .define("TERMS", 16)
        .with(KERNEL);
    let launch = |to: u64| {
        let args = Args::default()
            .all(&[input, weight, output, to])
            .all(&[
                batch, channels, height, width, filters, kernel_h, kernel_w, out[2], out[3],
            ])
            .all(&params.stride[..2])
            .all(&params.padding[..2])
            .all(&params.dilation[..2])
            .all(&[groups, splits, part]);
        let threads = u32::try_from(side * side).map_err(|_| Error::unsupported("too large a tile"))?;
        queue.launch(source.clone(), tiles * splits as u64, threads, &args)
    };
    if splits == 1 {
        return launch(to);
    }
    // Each part's sums, which are added up.
    let wide = if call.dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let count = filters * per_in * window;
    let scratch = queue.scratch(count * splits * wide.size())?;
    launch(scratch.address())?;
    match wide == call.dtype {
        true => reduce::sum_parts(queue, wide, splits, count, scratch.address(), to)?,
        false => {
            let sums = queue.scratch(count * wide.size())?;
            reduce::sum_parts(queue, wide, splits, count, scratch.address(), sums.address())?;
            super::elementwise::narrow(queue, (wide, sums.address()), (call.dtype, to), count)?;
            sums.release()?;
        }
    }
    scratch.release()
}
