//! Scaled dot-product attention: in one kernel or, for long queries and values, by products and a softmax.

use polygrad_core::compute::{Attention, Batch, Gemm, Softmax, Transpose};
use polygrad_core::{DType, Error, Result};

use crate::gpu::Session;

/// The most bytes of scores at a time.
const SCORES: usize = 64 << 20;

impl Session<'_> {
    pub(crate) fn attention(&mut self, call: &Attention) -> Result<()> {
        if !call.dtype.is_float() {
            return Err(Error::dtype(format!("not defined for {}", call.dtype)));
        }
        self.offers(call.dtype)?;
        let [q, k, v, out] = call.spans()?;
        if out == 0 {
            return Ok(());
        }
        for (ptr, span) in [(call.q, q), (call.k, k), (call.v, v), (call.output, out)] {
            if span > 0 {
                self.typed(ptr, span, call.dtype)?;
            }
        }
        if self.flash(call)? {
            return Ok(());
        }
        let heads = call.batch * call.heads;
        let head = call.seq_q * call.seq_kv;
        let most = SCORES.min(self.gpu.max_buffer() as usize) / 4;
        let at_once = (most / head.max(1)).clamp(1, heads);
        let mut first = 0;
        while first < heads {
            let count = at_once.min(heads - first);
            self.some_heads(call, first, count)?;
            first += count;
        }
        Ok(())
    }

    /// Computes scores, their softmax, and the weighted sums of values, for some heads.
    fn some_heads(&mut self, call: &Attention, first: usize, count: usize) -> Result<()> {
        let size = call.dtype.size();
        let (rows, columns) = (call.seq_q, call.seq_kv);
        let scores = self.temporary((count * rows * columns).max(1) * 4)?;
        let scores = self.address(&scores, count * rows * columns * 4)?;
        let product = Gemm {
            dtype: call.dtype,
            dtype_c: DType::F32,
            trans_a: Transpose::No,
            trans_b: Transpose::Yes,
            m: rows,
            n: columns,
            k: call.head_dim,
            alpha: call.scale,
            beta: 0.0,
            a: call.q.add(first * rows * call.head_dim * size),
            lda: call.head_dim,
            b: call.k.add(first * columns * call.head_dim * size),
            ldb: call.head_dim,
            c: scores,
            ldc: columns,
        };
        let batch = Batch {
            count,
            stride_a: rows * call.head_dim,
            stride_b: columns * call.head_dim,
            stride_c: rows * columns,
        };
        self.gemm(&product, &batch)?;
        let softmax = Softmax {
            dtype: DType::F32,
            rows: count * rows,
            columns,
            log: false,
            input: scores,
            saved: scores,
            output: scores,
        };
        self.softmax(&softmax, call.causal.then_some(rows))?;
        // The weights are f32, so the values are converted to f32, too: the result is rounded once, at the end.
        let values = self.wide(
            call.v.add(first * columns * call.value_dim * size),
            count * columns * call.value_dim,
            call.dtype,
        )?;
        let target = self.words_for(
            call.output.add(first * rows * call.value_dim * size),
            count * rows * call.value_dim,
            call.dtype,
        )?;
        let output = self.address(&target.place, count * rows * call.value_dim * 4)?;
        let product = Gemm {
            dtype: DType::F32,
            dtype_c: DType::F32,
            trans_b: Transpose::No,
            m: rows,
            n: call.value_dim,
            k: columns,
            alpha: 1.0,
            a: scores,
            lda: columns,
            b: values,
            ldb: call.value_dim,
            c: output,
            ldc: call.value_dim,
            ..product
        };
        let batch = Batch {
            count,
            stride_a: rows * columns,
            stride_b: columns * call.value_dim,
            stride_c: rows * call.value_dim,
        };
        self.gemm(&product, &batch)?;
        self.finish(&target)
    }
}
