//! Ops along contiguous rows: softmax, layer normalisation and cross entropy.

use polygrad_core::compute::{CrossEntropy, LayerNorm, Softmax};
use polygrad_core::{DType, Error, Result};

use super::floats;
use super::memory::Space;
use super::queue::Queue;
use crate::source::{Args, File, Source, file};

const SOFTMAX: File = file!("softmax");
const LAYER_NORM: File = file!("layer_norm");
const CROSS_ENTROPY: File = file!("cross_entropy");

/// Threads for a row: at most as many as it has elements, but at least a warp.
fn threads(queue: &Queue, columns: usize) -> u32 {
    let wanted = u32::try_from(columns).unwrap_or(u32::MAX).min(queue.block());
    wanted.next_power_of_two().max(32).min(queue.block())
}

/// See [`polygrad_core::compute::ComputeBackend::softmax`] and
/// [`polygrad_core::compute::ComputeBackend::softmax_backward`].
pub(super) fn softmax(queue: &Queue, space: &Space<'_>, call: &Softmax, backward: bool) -> Result<()> {
    floats(call.dtype)?;
    let dims = [call.rows, call.columns];
    let input = space.row(call.input, call.dtype, &dims)?;
    let saved = match backward {
        true => space.row(call.saved, call.dtype, &dims)?,
        false => 0,
    };
    let output = space.row(call.output, call.dtype, &dims)?;
    if call.rows == 0 || call.columns == 0 {
        return Ok(());
    }
    let block = threads(queue, call.columns);
    let source = Source::new(SOFTMAX, call.dtype, block)
        .flag("BACKWARD", backward)
        .flag("LOG", call.log);
    let args = Args::default().all(&[input, saved, output]).all(&dims);
    queue.launch(source, call.rows as u64, block, &args)
}

/// See [`polygrad_core::compute::ComputeBackend::layer_norm`].
pub(super) fn layer_norm(queue: &Queue, space: &Space<'_>, call: &LayerNorm) -> Result<()> {
    floats(call.dtype)?;
    if call.rows > 0 && call.columns == 0 {
        return Err(Error::invalid("the mean of rows of no elements"));
    }
    let dims = [call.rows, call.columns];
    let row = |ptr, dims: &[usize]| space.row(ptr, call.dtype, dims);
    let parameter = |ptr: Option<_>| ptr.map_or(Ok(0), |ptr| row(ptr, &[call.columns]));
    let addresses = [
        row(call.input, &dims)?,
        parameter(call.weight)?,
        parameter(call.bias)?,
        row(call.output, &dims)?,
        row(call.mean, &[call.rows])?,
        row(call.rstd, &[call.rows])?,
    ];
    let block = threads(queue, call.columns);
    let source = Source::new(LAYER_NORM, call.dtype, block);
    let args = Args::default().all(&addresses).all(&dims).push(call.eps);
    queue.launch(source, call.rows as u64, block, &args)
}

/// See [`polygrad_core::compute::ComputeBackend::cross_entropy`] and
/// [`polygrad_core::compute::ComputeBackend::cross_entropy_backward`].
pub(super) fn cross_entropy(queue: &Queue, space: &Space<'_>, call: &CrossEntropy, backward: bool) -> Result<()> {
    floats(call.dtype)?;
    let (rows, columns) = (call.rows, call.columns);
    let row = |ptr, dims: &[usize]| space.row(ptr, call.dtype, dims);
    let addresses = [
        row(call.logits, &[rows, columns])?,
        space.row(call.target, DType::I64, &[rows])?,
        row(call.loss, &[rows])?,
        row(call.logsumexp, &[rows])?,
        if backward { row(call.grad, &[rows, columns])? } else { 0 },
    ];
    if rows == 0 || (backward && columns == 0) {
        return Ok(());
    }
    if columns == 0 {
        return Err(Error::invalid("rows of no classes"));
    }
    let block = if backward {
        queue.block()
    } else {
        threads(queue, columns)
    };
    let source = Source::new(CROSS_ENTROPY, call.dtype, block).flag("BACKWARD", backward);
    let smoothing = call.params.label_smoothing;
    let args = Args::default()
        .all(&addresses[..2])
        .push(queue.reports.address(&queue.runtime)?)
        .all(&addresses[2..])
        .push(rows)
        .push(columns)
        .push(call.params.ignore_index)
        .push(1.0 - smoothing)
        .push(smoothing);
    match backward {
        true => queue.launch_each(source, rows * columns, &args),
        false => queue.launch(source, rows as u64, block, &args),
    }
}
