//! Attention.

use polygrad_core::compute::Attention;
use polygrad_core::{DType, Error, Result};

use super::floats;
use super::memory::Space;
use super::queue::Queue;
use crate::source::{Args, File, file};

const KERNEL: File = file!("attention");

/// Bytes of a block's memory that every device has, less what else the kernel keeps.
const SHARED: usize = 47 << 10;

/// Queries and keys of a tile: as many as fit, up to 32.
fn tile(head: usize, value: usize, size: usize) -> Option<usize> {
    [32usize, 16, 8, 4, 2, 1].into_iter().find(|&tile| {
        let numbers = tile
            .checked_mul(2)
            .and_then(|twice| twice.checked_mul(head.checked_add(value)?.checked_add(1)?))
            .and_then(|numbers| numbers.checked_add(tile * (tile + 4)));
        numbers
            .and_then(|numbers| numbers.checked_mul(size))
            .is_some_and(|bytes| bytes <= SHARED)
    })
}

/// See [`polygrad_core::compute::ComputeBackend::attention`].
pub(super) fn attention(queue: &Queue, space: &Space<'_>, call: &Attention) -> Result<()> {
    let spans = call.spans()?;
    floats(call.dtype)?;
    let row = |ptr, span| space.span(ptr, call.dtype, span);
    let (q, k, v) = (row(call.q, spans[0])?, row(call.k, spans[1])?, row(call.v, spans[2])?);
    let output = row(call.output, spans[3])?;
    if spans[3] == 0 {
        return Ok(());
    }
    let size = if call.dtype == DType::F64 { 8 } else { 4 };
    let Some(tile) = tile(call.head_dim, call.value_dim, size) else {
        return Err(Error::unsupported(format!(
            "attention over heads of {} and values of {}: a tile does not fit a block's memory",
            call.head_dim, call.value_dim
        ))
        .with_hint("decompose it into two products and a softmax"));
    };
    let heads = call.batch * call.heads;
    let source = queue
        .source(KERNEL, call.dtype)
        .define("ROWS", tile)
        .define("KEYS", tile)
        .define("HEAD", call.head_dim)
        .define("VALUE", call.value_dim)
        .flag("CAUSAL", call.causal);
    let args = Args::default()
        .all(&[q, k, v, output])
        .all(&[call.heads, call.seq_q, call.seq_kv])
        .push(call.scale);
    let blocks = heads as u64 * call.seq_q.div_ceil(tile) as u64;
    queue.launch(source, blocks, queue.block(), &args)
}
