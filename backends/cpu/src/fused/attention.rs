//! Attention without gradients: a block of scores at a time, which stays in the cache between its product, its softmax and the
//! product with the values.

use polygrad_core::{Axes, DType, Layout, Result, Shape, decompose};

use super::rows::{each_in_row, max_row, sum_row};
use super::vectors;
use crate::buffers::Buffer;
use crate::gemm::{self, Dims, Mat, MatMut, Update};
use crate::loops::Pointer;
use crate::math::exp_nonpositive;
use crate::ops::matmul::{Stack, many};
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuTensor};

/// Scores that are computed at a time, at most, if a block is to have more than [`FEWEST`] queries.
const SCORES: usize = 32 << 10;

/// Queries of a block, at least, so that the products are worth it.
const FEWEST: usize = 16;

/// See [`polygrad_core::Backend::attention`].
pub(crate) fn attention(
    q: &CpuTensor,
    k: &CpuTensor,
    v: &CpuTensor,
    mask: Option<&CpuTensor>,
    scale: f64,
    causal: bool,
) -> Result<CpuTensor> {
    let rank = q.shape().rank();
    let lead = |x: &CpuTensor| x.shape().rank() == rank && x.shape()[..rank - 2] == q.shape()[..rank - 2];
    let plain =
        rank >= 2 && lead(k) && lead(v) && mask.is_none_or(|mask| matches!(mask.dtype(), DType::F32 | DType::Bool));
    let level = match vectors([q, k, v]) {
        Some(level) if plain => level,
        _ => return decompose::attention::<Cpu>(q, k, v, mask, scale, causal),
    };
    let batch = Shape::new(&q.shape()[..rank - 2])?;
    let (queries, width) = (q.shape()[rank - 2], q.shape()[rank - 1]);
    let (keys, out) = (v.shape()[rank - 2], v.shape()[rank - 1]);
    let mut y = Output::new(q, out)?;
    let masked = mask
        .map(|mask| -> Result<_> {
            let scores = q.shape().with_dim(rank - 1, keys);
            Ok(mask.with_layout(mask.layout().expand(scores)))
        })
        .transpose()?;
    let stacks = [q, k, v].map(|x| Stack::new(x, &batch));
    let [from_q, from_k, from_v] = [q.typed::<f32>()?, k.typed()?, v.typed()?].map(|x| Pointer(x.cast_mut()));
    let mask = masked.as_ref().map(|mask| {
        (
            Stack::new(mask, &batch),
            Pointer(mask.ptr().cast_mut()),
            mask.dtype() == DType::Bool,
        )
    });
    let device = q.device();
    let rows = (SCORES / keys.max(1)).max(FEWEST).min(queries.max(1));
    let to = y.matrices(&batch);
    let one = |i: usize| {
        let mat = |n: usize, from: &Pointer<f32>| {
            let at = from.0.cast_const().wrapping_offset(stacks[n].offset(&batch, i));
            Mat::new(at, stacks[n].rows, stacks[n].cols)
        };
        let (q, k, v) = (mat(0, &from_q), mat(1, &from_k), mat(2, &from_v));
        let c = to.at(i);
        let scores = Buffer::alloc(rows * keys * size_of::<f32>())?;
        let scores = scores.as_ptr().cast::<f32>();
        for first in (0..queries).step_by(rows) {
            let m = rows.min(queries - first);
            let score = Dims { m, n: keys, k: width };
            let value = Dims { m, n: out, k: keys };
            let block = MatMut::new(scores, keys.cast_signed(), 1);
            let update = Update {
                alpha: scale as f32,
                ..Update::set()
            };
            // SAFETY: the matrices are parts of the tensors, the scores have room for a block, and each block of the output is
            // written by one task.
            unsafe {
                let part = Mat::new(q.at(first, 0), q.rows, q.cols);
                gemm::gemm(device, score, part, k.transposed(), block, update)?;
                level.run(Weights {
                    scores,
                    first,
                    rows: m,
                    keys,
                    mask: mask.as_ref().map(|(stack, ptr, bools)| Mask {
                        ptr: ptr.0.cast_const(),
                        offset: stack.offset(&batch, i),
                        rows: stack.rows,
                        cols: stack.cols,
                        bools: *bools,
                    }),
                    // Query i sees keys up to this and i.
                    seen: causal.then_some(keys.cast_signed() - queries.cast_signed()),
                });
                let weights = Mat::new(scores.cast_const(), keys.cast_signed(), 1);
                let c = MatMut::new(c.at(first, 0), c.rows, c.cols);
                gemm::gemm(device, value, weights, v, c, Update::set())?;
            }
        }
        Ok(())
    };
    let dims = Dims {
        m: queries,
        n: keys,
        k: width + out,
    };
    let ns = gemm::cost(dims, level) + (queries * keys) as f32;
    many(device, batch.numel(), ns, one)?;
    y.finish()
}

/// The result. Its matrices lie as those of heads do that are brought together again, so that doing so copies nothing.
struct Output {
    tensor: CpuTensor,
    layout: Layout,
}

impl Output {
    fn new(q: &CpuTensor, out: usize) -> Result<Self> {
        let rank = q.shape().rank();
        let shape = q.shape().with_dim(rank - 1, out);
        let axes = Axes::new((0..rank).map(|axis| match rank - axis {
            2 if rank >= 4 => rank - 3,
            3 if rank >= 4 => rank - 2,
            _ => axis,
        }))?;
        let mut stored = shape;
        for (to, from) in stored.dims_mut().iter_mut().zip(axes.iter()) {
            *to = shape[from];
        }
        let tensor = CpuTensor::empty(stored, DType::F32, q.device())?;
        Ok(Self {
            layout: tensor.layout().permute(axes),
            tensor,
        })
    }

    fn matrices(&mut self, batch: &Shape) -> Matrices {
        let view = self.tensor.with_layout(self.layout);
        Matrices {
            ptr: Pointer(self.tensor.ptr_mut().cast()),
            stack: Stack::new(&view, batch),
            batch: *batch,
        }
    }

    fn finish(self) -> Result<CpuTensor> {
        Ok(self.tensor.with_layout(self.layout))
    }
}

/// The matrices of the result.
struct Matrices {
    ptr: Pointer<f32>,
    stack: Stack,
    batch: Shape,
}

impl Matrices {
    fn at(&self, i: usize) -> MatMut<f32> {
        let ptr = self.ptr.0.wrapping_offset(self.stack.offset(&self.batch, i));
        MatMut::new(ptr, self.stack.rows, self.stack.cols)
    }
}

/// Which keys count, or what is added to their scores; strides in elements.
#[derive(Clone, Copy)]
struct Mask {
    ptr: *const u8,
    offset: isize,
    rows: isize,
    cols: isize,
    bools: bool,
}

/// Scores to weights, in place.
struct Weights {
    scores: *mut f32,
    /// The first query of the block.
    first: usize,
    rows: usize,
    keys: usize,
    mask: Option<Mask>,
    seen: Option<isize>,
}

impl Kernel for Weights {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (n, blocked) = (self.keys, self.mask.is_some() || self.seen.is_some());
        for row in 0..self.rows {
            let x = self.scores.wrapping_add(row * n);
            // SAFETY: the row is inside the block, its mask inside the tensor.
            unsafe {
                if let Some(mask) = self.mask {
                    mask.apply(s, self.first + row, x, n);
                }
                if let Some(seen) = self.seen {
                    let end = (seen + (self.first + row).cast_signed() + 1).clamp(0, n.cast_signed());
                    (end.cast_unsigned()..n).for_each(|i| x.add(i).write(f32::NEG_INFINITY));
                }
                if n == 0 {
                    continue;
                }
                let most = max_row(s, x, n);
                let top = s.splat(most);
                let total = if most == f32::NEG_INFINITY {
                    f64::NAN
                } else {
                    sum_row!(s, n, |load, store| {
                        let e = exp_nonpositive(s, s.sub(load(x), top));
                        store(x, e);
                        e
                    })
                };
                let scale = s.splat((1.0 / total) as f32);
                if most == f32::NEG_INFINITY && blocked {
                    // What is blocked is 0, also where nothing else is; a NaN stays.
                    (0..n).for_each(|i| x.add(i).write(if x.add(i).read().is_nan() { f32::NAN } else { 0.0 }));
                } else {
                    each_in_row!(s, n, |load, store| store(x, s.mul(load(x), scale)));
                }
            }
        }
    }
}

impl Mask {
    /// # Safety
    /// The row must be inside the mask, and `n` scores writable.
    #[inline(always)]
    unsafe fn apply<S: Simd>(self, s: S, row: usize, x: *mut f32, n: usize) {
        let start = self.offset + row.cast_signed() * self.rows;
        // SAFETY: by the caller.
        unsafe {
            if self.bools {
                for i in 0..n {
                    if self.ptr.offset(start + i.cast_signed() * self.cols).read() == 0 {
                        x.add(i).write(f32::NEG_INFINITY);
                    }
                }
                return;
            }
            let from = self.ptr.cast::<f32>().offset(start);
            if self.cols == 1 {
                each_in_row!(s, n, |load, store| store(x, s.add(load(x), load(from))));
                return;
            }
            for i in 0..n {
                let y = x.add(i).read() + from.offset(i.cast_signed() * self.cols).read();
                x.add(i).write(y);
            }
        }
    }
}
