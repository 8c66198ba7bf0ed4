//! Attention.

use polygrad_core::compute::{Attention, AttentionBackward};
use polygrad_core::{DType, Error, Result};

use super::floats;
use super::memory::Space;
use super::queue::Queue;
use crate::source::{Args, File, Source, file};

const KERNEL: File = file!("attention");
const BY_MATRICES: File = file!("attention_matrices" after "matrices");
const BACKWARD: File = file!("attention_backward" after "matrices");

/// For kernels with matrix instructions: the longest heads and values, and the rows and threads of a block.
const LONGEST: usize = 128;
const ROWS: usize = 64;
const THREADS: u32 = 128;

/// Bytes that the gradient's kernels keep for each query.
const STATS: usize = 8;

/// Bytes of shared memory per block that every device has.
const SHARED: usize = 48 << 10;

/// The threads of a block along keys and along queries, and how many keys and queries each thread handles.
#[derive(Clone, Copy)]
struct Tile {
    across: usize,
    down: usize,
    per: usize,
}

impl Tile {
    const ALL: [Self; 6] = [
        Self::new(8, 16, 4),
        Self::new(8, 16, 2),
        Self::new(8, 16, 1),
        Self::new(4, 4, 1),
        Self::new(2, 2, 1),
        Self::new(1, 1, 1),
    ];

    const fn new(across: usize, down: usize, per: usize) -> Self {
        Self { across, down, per }
    }

    /// The largest tile that fits shared memory, if any.
    fn of(head: usize, value: usize, size: usize) -> Option<Self> {
        let fits = |tile: &Self| tile.bytes(head, value, size).is_some_and(|bytes| bytes <= SHARED);
        Self::ALL.into_iter().find(fits)
    }

    fn rows(self) -> usize {
        self.down * self.per
    }

    /// The bytes of shared memory that the kernel needs: for queries, for keys (later overwritten by weights), and for
    /// values.
    fn bytes(self, head: usize, value: usize, size: usize) -> Option<usize> {
        let Self { across, down, per } = self;
        let queries = head.checked_mul(down + 1)?.checked_mul(per)?;
        let keys = head
            .checked_mul(across + 1)?
            .max(across * per * (down + 1))
            .checked_mul(per)?;
        let values = value.div_ceil(4 * across).checked_mul(4 * across * across * per)?;
        queries.checked_add(keys)?.checked_add(values)?.checked_mul(size)
    }
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
    let heads = call.batch * call.heads;
    let args = Args::default()
        .all(&[q, k, v, output])
        .all(&[call.heads, call.seq_q, call.seq_kv])
        .push(call.scale);
    if by_matrices(queue, call) {
        let source = matrices(queue, BY_MATRICES, call, &[q, k, v]);
        let blocks = heads as u64 * call.seq_q.div_ceil(ROWS) as u64;
        return queue.launch(source, blocks, THREADS, &args);
    }
    let size = if call.dtype == DType::F64 { 8 } else { 4 };
    let Some(tile) = Tile::of(call.head_dim, call.value_dim, size) else {
        return Err(Error::unsupported(format!(
            "attention over heads of {} and values of {}: a tile does not fit a block's memory",
            call.head_dim, call.value_dim
        ))
        .with_hint("decompose it into two products and a softmax"));
    };
    let source = define(queue, KERNEL, call)
        .define("ACROSS", tile.across)
        .define("DOWN", tile.down)
        .define("PER", tile.per);
    let blocks = heads as u64 * call.seq_q.div_ceil(tile.rows()) as u64;
    queue.launch(source, blocks, (tile.across * tile.down) as u32, &args)
}

/// See [`polygrad_core::compute::ComputeBackend::attention_backward`].
pub(super) fn attention_backward(queue: &Queue, space: &Space<'_>, call: &AttentionBackward) -> Result<()> {
    let attention = &call.forward;
    let spans = attention.spans()?;
    floats(attention.dtype)?;
    if !by_matrices(queue, attention) {
        return Err(Error::unsupported(format!(
            "the gradient of attention in {} over heads of {} and values of {}",
            attention.dtype, attention.head_dim, attention.value_dim
        ))
        .with_hint(format!(
            "tensor cores compute it in f16 and bf16, for at most {LONGEST}; decompose it into products and a softmax"
        )));
    }
    let of = |ptr, i: usize| space.span(ptr, attention.dtype, spans[i]);
    let read = [
        of(attention.q, 0)?,
        of(attention.k, 1)?,
        of(attention.v, 2)?,
        of(call.grad, 3)?,
    ];
    let written = [of(call.to_q, 0)?, of(call.to_k, 1)?, of(call.to_v, 2)?];
    let heads = attention.batch * attention.heads;
    let scratch = queue.scratch(heads * attention.seq_q * STATS)?;
    let args = Args::default()
        .all(&read)
        .all(&written)
        .push(scratch.address())
        .all(&[attention.seq_q, attention.seq_kv])
        .push(attention.scale);
    for (by_keys, rows) in [(false, attention.seq_q), (true, attention.seq_kv)] {
        let source = matrices(queue, BACKWARD, attention, &read)
            .flag("BY_KEYS", by_keys)
            .flag("SMALL_RANGE", attention.dtype == DType::F16)
            .define("TILE", tile(attention.head_dim, attention.value_dim));
        queue.launch(source, heads as u64 * rows.div_ceil(ROWS) as u64, THREADS, &args)?;
    }
    scratch.release()
}

/// See [`polygrad_core::compute::ComputeBackend::supports`].
pub(super) fn has_gradient(queue: Option<&Queue>, dtype: DType) -> bool {
    let halves = matches!(dtype, DType::F16 | DType::BF16);
    halves && queue.is_some_and(|queue| queue.runtime.facts().matrices)
}

/// Whether matrix instructions multiply.
fn by_matrices(queue: &Queue, call: &Attention) -> bool {
    has_gradient(Some(queue), call.dtype) && call.head_dim.max(call.value_dim) <= LONGEST
}

/// The rows of a tile of the gradient's kernels: as many as fit shared memory beside a block's own.
fn tile(head: usize, value: usize) -> usize {
    let row = [head, value]
        .map(|width| (2 * width.div_ceil(16).max(1) + 1) * 16)
        .iter()
        .sum::<usize>();
    let fits = |tile: usize| (ROWS + tile) * row + tile * STATS <= SHARED;
    [64, 32].into_iter().find(|&tile| fits(tile)).unwrap_or(16)
}

fn define(queue: &Queue, kernel: File, call: &Attention) -> Source<'static> {
    queue
        .source(kernel, call.dtype)
        .define("HEAD", call.head_dim)
        .define("VALUE", call.value_dim)
        .flag("CAUSAL", call.causal)
}

/// A kernel with matrix instructions that reads these addresses.
fn matrices(queue: &Queue, kernel: File, call: &Attention, addresses: &[u64]) -> Source<'static> {
    let formats = match call.dtype {
        DType::F16 => "\"f32.f16.f16.f32\"",
        _ => "\"f32.bf16.bf16.f32\"",
    };
    // Sixteen bytes are loaded at once.
    let aligned = [call.head_dim, call.value_dim].iter().all(|n| n.is_multiple_of(8))
        && addresses.iter().all(|address| address.is_multiple_of(16));
    define(queue, kernel, call)
        .define("FORMATS", formats)
        .flag("ALIGNED", aligned)
}
