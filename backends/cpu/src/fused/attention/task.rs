//! The operands of attention and its gradient, and how they are cut into blocks.

use polygrad_core::{Axes, DType, Layout, Result, Shape};

use super::super::vectors;
use super::weights::{Mask, Softmax};
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::{self, Dims, Mat, MatMut, Update};
use crate::ops::matmul::Stack;
use crate::simd::Level;
use crate::{CpuDevice, CpuTensor};

/// The most scores that are computed at a time, unless that gives a block fewer than [`FEWEST`] queries.
const SCORES: usize = 32 << 10;

/// The fewest queries of a block, so that its products are large enough to be efficient.
const FEWEST: usize = 16;

/// The most queries of a block of causal attention: keys that none of its queries sees are skipped.
const CAUSAL: usize = 32;

/// At most so long is what [`CpuDevice::try_each`] does side by side on several threads.
const LONG_NS: f32 = 1_000_000.0;

/// Attention in f32 over operands with the same leading axes.
pub(super) struct Task {
    pub(super) device: CpuDevice,
    pub(super) level: Level,
    /// The leading axes.
    pub(super) batch: Shape,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) sight: VisibleKeys,
    /// Columns of queries and keys.
    pub(super) width: usize,
    /// Columns of values.
    pub(super) out: usize,
    pub(super) scale: f32,
    pub(super) q: Matrices,
    pub(super) k: Matrices,
    pub(super) v: Matrices,
    mask: Option<Masks>,
}

/// The keys that a query sees apart from the mask: always the first ones.
#[derive(Clone, Copy)]
pub(super) struct VisibleKeys {
    keys: usize,
    /// Causal attention is aligned to the bottom right: query i sees keys up to i plus this.
    ahead: Option<isize>,
}

impl VisibleKeys {
    /// The number of keys that a query sees.
    #[inline(always)]
    pub(super) fn keys(self, query: usize) -> usize {
        match self.ahead {
            Some(ahead) => (query.cast_signed() + ahead + 1).max(0).cast_unsigned(),
            None => self.keys,
        }
    }

    pub(super) fn is_causal(self) -> bool {
        self.ahead.is_some()
    }
}

/// Queries whose scores are computed at a time.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) first: usize,
    pub(super) rows: usize,
    /// Number of keys that at least one of the queries sees.
    pub(super) keys: usize,
}

impl Task {
    /// `None` if other kernels must be used: for other dtypes, other layouts and operands whose shapes do not match.
    pub(super) fn new(
        q: &CpuTensor,
        k: &CpuTensor,
        v: &CpuTensor,
        mask: Option<&CpuTensor>,
        scale: f64,
        causal: bool,
    ) -> Result<Option<Self>> {
        let rank = q.shape().rank();
        let lead = |x: &CpuTensor| x.shape().rank() == rank && x.shape()[..rank - 2] == q.shape()[..rank - 2];
        let (Some(level), true) = (vectors([q, k, v]), rank >= 2 && lead(k) && lead(v)) else {
            return Ok(None);
        };
        let (queries, width) = (q.shape()[rank - 2], q.shape()[rank - 1]);
        let (keys, out) = (v.shape()[rank - 2], v.shape()[rank - 1]);
        let scores = q.shape().with_dim(rank - 1, keys);
        let masks =
            |mask: &CpuTensor| matches!(mask.dtype(), DType::F32 | DType::Bool) && mask.shape().broadcasts_to(&scores);
        if k.shape()[rank - 2..] != [keys, width] || !mask.is_none_or(masks) {
            return Ok(None);
        }
        let batch = Shape::new(&q.shape()[..rank - 2])?;
        Ok(Some(Self {
            device: q.device(),
            level,
            queries,
            keys,
            width,
            out,
            sight: VisibleKeys {
                keys,
                ahead: causal.then_some(keys.cast_signed() - queries.cast_signed()),
            },
            scale: scale as f32,
            q: Matrices::new(q, &batch)?,
            k: Matrices::new(k, &batch)?,
            v: Matrices::new(v, &batch)?,
            mask: mask.map(|mask| Masks::new(mask, scores, &batch)),
            batch,
        }))
    }

    /// Calls `one` for each index of the leading axes. `terms` is the number of products per score.
    pub(super) fn each(&self, terms: usize, one: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        let dims = Dims {
            m: self.queries,
            n: self.keys,
            k: terms,
        };
        let (count, scores) = (self.batch.numel(), (self.queries * self.keys) as f32);
        let ns = gemm::cost(dims, self.level) + scores;
        // The passes over scores run on one thread each, so all threads are busy only if tasks run side by side.
        let side_by_side = count >= self.device.threads();
        self.device
            .try_each(count, if side_by_side { ns.min(LONG_NS) } else { ns }, one)
    }

    fn block_rows(&self) -> usize {
        let most = if self.sight.is_causal() { CAUSAL } else { SCORES };
        let rows = (SCORES / self.keys.max(1)).max(FEWEST);
        rows.min(most).min(self.queries).max(1)
    }

    /// The blocks in order; the last one sees all keys.
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = Block> {
        let step = self.block_rows();
        (0..self.queries.div_ceil(step)).map(move |i| {
            let first = i * step;
            let rows = step.min(self.queries - first);
            let keys = self.sight.keys(first + rows - 1);
            Block { first, rows, keys }
        })
    }

    /// Memory for the scores of a block, a row for each query and a column for each key.
    pub(super) fn room(&self) -> Result<Buffer> {
        Buffer::alloc(self.block_rows() * self.keys * size_of::<f32>())
    }

    /// Writes the attention weights of a block's queries for the keys that the block sees.
    ///
    /// # Safety
    /// `to` must have the size of [`Task::room`], and `i` be an index of the leading axes.
    pub(super) unsafe fn weights(&self, i: usize, block: Block, to: *mut f32) -> Result<()> {
        let (q, k) = (self.q.at(&self.batch, i), self.k.at(&self.batch, i));
        let dims = Dims {
            m: block.rows,
            n: block.keys,
            k: self.width,
        };
        let update = Update {
            alpha: self.scale,
            ..Update::set()
        };
        let part = Mat::new(q.at(block.first, 0).cast_const(), q.rows, q.cols);
        let scores = MatMut::new(to, self.keys.cast_signed(), 1);
        // SAFETY: the matrices are parts of the tensors; the caller guarantees the size of `to`.
        unsafe { gemm::gemm(self.device, dims, part, k.readable().transposed(), scores, update)? };
        self.level.run(Softmax {
            scores: to,
            stride: self.keys,
            block,
            sight: self.sight,
            mask: self.mask.as_ref().map(|masks| masks.at(&self.batch, i)),
        });
        Ok(())
    }
}

/// The matrices of a tensor.
pub(super) struct Matrices {
    ptr: Pointer<f32>,
    stack: Stack,
}

impl Matrices {
    /// The matrices of a tensor of f32, for reading.
    pub(super) fn new(x: &CpuTensor, batch: &Shape) -> Result<Self> {
        Ok(Self {
            ptr: Pointer(x.typed::<f32>()?.cast_mut()),
            stack: Stack::new(x, batch),
        })
    }

    pub(super) fn at(&self, batch: &Shape, i: usize) -> MatMut<f32> {
        let ptr = self.ptr.0.wrapping_offset(self.stack.offset(batch, i));
        MatMut::new(ptr, self.stack.rows, self.stack.cols)
    }
}

/// Masks, one for each matrix of scores.
struct Masks {
    ptr: Pointer<u8>,
    stack: Stack,
    bools: bool,
}

impl Masks {
    fn new(mask: &CpuTensor, scores: Shape, batch: &Shape) -> Self {
        Self {
            ptr: Pointer(mask.ptr().cast_mut()),
            stack: Stack::new(&mask.with_layout(mask.layout().expand(scores)), batch),
            bools: mask.dtype() == DType::Bool,
        }
    }

    fn at(&self, batch: &Shape, i: usize) -> Mask {
        Mask {
            ptr: self.ptr.0.cast_const(),
            offset: self.stack.offset(batch, i),
            rows: self.stack.rows,
            cols: self.stack.cols,
            bools: self.bools,
        }
    }
}

/// A new tensor whose memory layout is already that of the merged heads, so that merging them copies nothing.
pub(super) struct Output {
    tensor: CpuTensor,
    layout: Layout,
}

impl Output {
    pub(super) fn new(shape: Shape, device: CpuDevice) -> Result<Self> {
        let rank = shape.rank();
        let axes = Axes::new((0..rank).map(|axis| match rank - axis {
            2 if rank >= 4 => rank - 3,
            3 if rank >= 4 => rank - 2,
            _ => axis,
        }))?;
        let mut stored = shape;
        for (to, from) in stored.dims_mut().iter_mut().zip(axes.iter()) {
            *to = shape[from];
        }
        let tensor = CpuTensor::empty(stored, DType::F32, device)?;
        Ok(Self {
            layout: tensor.layout().permute(axes),
            tensor,
        })
    }

    /// The matrices, for writing.
    pub(super) fn matrices(&mut self, batch: &Shape) -> Matrices {
        let view = self.tensor.with_layout(self.layout);
        Matrices {
            ptr: Pointer(self.tensor.ptr_mut().cast()),
            stack: Stack::new(&view, batch),
        }
    }

    pub(super) fn finish(self) -> CpuTensor {
        self.tensor.with_layout(self.layout)
    }
}
