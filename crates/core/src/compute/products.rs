//! Matrix products, convolutions, pooling and attention: arguments of the calls, and the extents of their operands.

use super::DevicePtr;
use super::calls::{bytes, uncountable};
use crate::{ConvParams, DType, Error, PoolParams, Result, Shape};

/// How a matrix is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transpose {
    /// As stored.
    #[default]
    No,
    /// Rows and columns exchanged.
    Yes,
    /// Rows and columns exchanged and complex numbers conjugated. There are no complex dtypes yet, so it is the same as
    /// `Yes`.
    Conjugate,
}

impl Transpose {
    /// All three.
    pub const ALL: [Self; 3] = [Self::No, Self::Yes, Self::Conjugate];

    /// Whether rows and columns are exchanged.
    pub const fn swaps(self) -> bool {
        !matches!(self, Self::No)
    }
}

/// `C = alpha · op(A) op(B) + beta · C`: `op(A)` is `m × k`, `op(B)` is `k × n`, `C` is `m × n`, all row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Dtype of A and B. f16 and bf16 accumulate in f32.
    pub dtype: DType,
    /// Dtype of C: `dtype`, or f32 for A and B of f16 or bf16.
    pub dtype_c: DType,
    /// How A is read.
    pub trans_a: Transpose,
    /// How B is read.
    pub trans_b: Transpose,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C's old values; if 0, C is not read.
    pub beta: f64,
    /// A.
    pub a: DevicePtr,
    /// Elements from one row of A, as stored, to the next.
    pub lda: usize,
    /// B.
    pub b: DevicePtr,
    /// Elements from one row of B, as stored, to the next.
    pub ldb: usize,
    /// C, which must not overlap A or B.
    pub c: DevicePtr,
    /// Elements from one row of C to the next.
    pub ldc: usize,
}

impl Gemm {
    /// Whether there is nothing to write.
    pub const fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0
    }

    /// The bytes that A, B and C span; 0 for a matrix that is not touched.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a row is longer than the leading dimension, the
    /// dtypes do not match, or a size overflows.
    pub fn spans(&self) -> Result<[usize; 3]> {
        let mixed = matches!(self.dtype, DType::F16 | DType::BF16) && self.dtype_c == DType::F32;
        if !self.dtype.is_float() || (self.dtype_c != self.dtype && !mixed) {
            return Err(Error::invalid(format!(
                "a product of {} matrices into {}",
                self.dtype, self.dtype_c
            )));
        }
        let oriented = |trans: Transpose, rows, columns| match trans.swaps() {
            true => (columns, rows),
            false => (rows, columns),
        };
        let span = |name: &str, (rows, columns): (usize, usize), ld: usize, dtype: DType| {
            if self.is_empty() || rows == 0 || columns == 0 {
                return Ok(0);
            }
            if columns > ld {
                return Err(Error::invalid(format!(
                    "rows of {columns} elements do not fit a leading dimension of {ld} in {name}"
                )));
            }
            bytes((rows - 1).checked_mul(ld).and_then(|x| x.checked_add(columns)), dtype)
        };
        Ok([
            span("A", oriented(self.trans_a, self.m, self.k), self.lda, self.dtype)?,
            span("B", oriented(self.trans_b, self.k, self.n), self.ldb, self.dtype)?,
            span("C", (self.m, self.n), self.ldc, self.dtype_c)?,
        ])
    }
}

/// A number of products of the same shape, and the distances between their matrices, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of products.
    pub count: usize,
    /// From one A to the next; 0: one A for all.
    pub stride_a: usize,
    /// From one B to the next; 0: one B for all.
    pub stride_b: usize,
    /// From one C to the next; no two may overlap.
    pub stride_c: usize,
}

impl Batch {
    /// One product.
    pub const ONE: Self = Self {
        count: 1,
        stride_a: 0,
        stride_b: 0,
        stride_c: 0,
    };

    /// [`Gemm::spans`] of all products.
    ///
    /// # Errors
    /// As [`Gemm::spans`], and when two Cs overlap.
    pub fn spans(&self, gemm: &Gemm) -> Result<[usize; 3]> {
        let one = gemm.spans()?;
        if self.count == 0 {
            return Ok([0; 3]);
        }
        let sizes = [gemm.dtype, gemm.dtype, gemm.dtype_c].map(DType::size);
        if self.count > 1
            && self
                .stride_c
                .checked_mul(sizes[2])
                .is_some_and(|stride| stride < one[2])
        {
            return Err(Error::invalid(format!(
                "results of {} bytes overlap, {} elements apart",
                one[2], self.stride_c
            )));
        }
        let strides = [self.stride_a, self.stride_b, self.stride_c];
        let mut out = [0; 3];
        for i in 0..3 {
            if one[i] > 0 {
                out[i] = (self.count - 1)
                    .checked_mul(strides[i])
                    .and_then(|x| x.checked_mul(sizes[i])?.checked_add(one[i]))
                    .ok_or_else(uncountable)?;
            }
        }
        Ok(out)
    }

    /// The `i`-th product. A pointer to no elements, such as A if `k` is 0, may be anything.
    #[must_use]
    pub fn nth(&self, i: usize, gemm: &Gemm) -> Gemm {
        let (size, size_c) = (gemm.dtype.size(), gemm.dtype_c.size());
        Gemm {
            a: gemm.a.add(i.wrapping_mul(self.stride_a).wrapping_mul(size)),
            b: gemm.b.add(i.wrapping_mul(self.stride_b).wrapping_mul(size)),
            c: gemm.c.add(i.wrapping_mul(self.stride_c).wrapping_mul(size_c)),
            ..*gemm
        }
    }
}

/// A convolution over two axes, all tensors contiguous: `input [N, C, H, W]`, `weight [O, C / groups, R, S]`,
/// `output [N, O, H', W']`. The forward pass writes `output`. Each gradient pass writes one of the three as a gradient,
/// and reads the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2d {
    /// Dtype of all three tensors.
    pub dtype: DType,
    /// `[N, C, H, W]`.
    pub input_shape: [usize; 4],
    /// `[O, C / groups, R, S]`.
    pub weight_shape: [usize; 4],
    /// Strides, padding and dilation of the two axes, and groups.
    pub params: ConvParams,
    /// The input, or its gradient.
    pub input: DevicePtr,
    /// The weight, or its gradient.
    pub weight: DevicePtr,
    /// The output, or its gradient.
    pub output: DevicePtr,
}

impl Conv2d {
    /// `[N, O, H', W']`.
    ///
    /// # Errors
    /// When shapes and parameters do not fit.
    pub fn output_shape(&self) -> Result<[usize; 4]> {
        let out = self
            .params
            .output_shape(&Shape::new(&self.input_shape)?, &Shape::new(&self.weight_shape)?)?;
        Ok([out[0], out[1], out[2], out[3]])
    }

    /// Sizes of input, weight and output in bytes.
    ///
    /// # Errors
    /// As [`Conv2d::output_shape`].
    pub fn spans(&self) -> Result<[usize; 3]> {
        let output = self.output_shape()?;
        Ok(
            [self.input_shape, self.weight_shape, output]
                .map(|dims| dims.iter().product::<usize>() * self.dtype.size()),
        )
    }
}

/// Pooling over two axes, all tensors contiguous: `input [N, C, H, W]` to `output [N, C, H', W']`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool2d {
    /// Dtype of input and output.
    pub dtype: DType,
    /// `[N, C, H, W]`.
    pub input_shape: [usize; 4],
    /// The windows.
    pub params: PoolParams,
    /// Read.
    pub input: DevicePtr,
    /// Written.
    pub output: DevicePtr,
    /// For max pooling, i64 `[N, C, H', W']`, written: the position of each maximum in the flattened `H × W`.
    pub positions: DevicePtr,
}

/// Scaled dot-product attention, all contiguous: `softmax(q kᵀ · scale) v` for `q [batch, heads, seq_q, head_dim]`,
/// `k [batch, heads, seq_kv, head_dim]`, `v [batch, heads, seq_kv, value_dim]`,
/// `output [batch, heads, seq_q, value_dim]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Dtype of all four tensors.
    pub dtype: DType,
    /// Independent sequences.
    pub batch: usize,
    /// Heads of each sequence.
    pub heads: usize,
    /// Queries of a head.
    pub seq_q: usize,
    /// Keys and values of a head.
    pub seq_kv: usize,
    /// Length of a query and of a key.
    pub head_dim: usize,
    /// Length of a value.
    pub value_dim: usize,
    /// Factor of the scores.
    pub scale: f64,
    /// Whether query `i` only sees the keys up to `i + seq_kv − seq_q`.
    pub causal: bool,
    /// Queries.
    pub q: DevicePtr,
    /// Keys.
    pub k: DevicePtr,
    /// Values.
    pub v: DevicePtr,
    /// Written; 0 for a query that sees nothing.
    pub output: DevicePtr,
}

impl Attention {
    /// Sizes of q, k, v and output in bytes.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a size overflows.
    pub fn spans(&self) -> Result<[usize; 4]> {
        let heads = self.batch.checked_mul(self.heads);
        let of = |rows: usize, columns: usize| {
            let elements = heads.and_then(|heads| heads.checked_mul(rows)?.checked_mul(columns));
            bytes(elements, self.dtype)
        };
        Ok([
            of(self.seq_q, self.head_dim)?,
            of(self.seq_kv, self.head_dim)?,
            of(self.seq_kv, self.value_dim)?,
            of(self.seq_q, self.value_dim)?,
        ])
    }
}

/// The gradient of [`Attention`] wrt queries, keys and values, all contiguous. The weights are recomputed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionBackward {
    /// The attention; its output is neither read nor written.
    pub forward: Attention,
    /// The output's gradient `[batch, heads, seq_q, value_dim]`.
    pub grad: DevicePtr,
    /// Written: the gradient of `q`; 0 for a query that sees nothing.
    pub to_q: DevicePtr,
    /// Written: the gradient of `k`.
    pub to_k: DevicePtr,
    /// Written: the gradient of `v`.
    pub to_v: DevicePtr,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const GEMM: Gemm = Gemm {
        dtype: DType::F32,
        dtype_c: DType::F32,
        trans_a: Transpose::No,
        trans_b: Transpose::Yes,
        m: 2,
        n: 3,
        k: 4,
        alpha: 1.0,
        beta: 0.0,
        a: DevicePtr::NULL,
        lda: 5,
        b: DevicePtr::NULL,
        ldb: 4,
        c: DevicePtr::NULL,
        ldc: 7,
    };

    #[test]
    fn products_know_what_they_touch() {
        assert_eq!(GEMM.spans().unwrap(), [9 * 4, 12 * 4, 10 * 4]);
        assert_eq!(Gemm { k: 0, lda: 0, ..GEMM }.spans().unwrap(), [0, 0, 40]);
        assert_eq!(Gemm { n: 0, ldb: 0, ..GEMM }.spans().unwrap(), [0; 3]);
        let mixed = Gemm {
            dtype: DType::F16,
            ..GEMM
        };
        assert_eq!(mixed.spans().unwrap(), [18, 24, 40]);
        let batch = Batch {
            count: 3,
            stride_a: 0,
            stride_b: 12,
            stride_c: 10,
        };
        assert_eq!(batch.spans(&GEMM).unwrap(), [36, 36 * 4, 120]);
        assert_eq!(batch.nth(2, &GEMM).b, DevicePtr::new(24 * 4));
        assert_eq!(Batch { count: 0, ..batch }.spans(&GEMM).unwrap(), [0; 3]);
    }

    #[test]
    fn products_that_make_no_sense_are_refused() {
        let batch = Batch {
            count: 2,
            stride_a: 8,
            stride_b: 12,
            stride_c: 9,
        };
        let errors = [
            Gemm { lda: 3, ..GEMM }.spans().unwrap_err(),
            Gemm {
                dtype_c: DType::F64,
                ..GEMM
            }
            .spans()
            .unwrap_err(),
            Gemm { m: usize::MAX, ..GEMM }.spans().unwrap_err(),
            batch.spans(&GEMM).unwrap_err(),
            Batch {
                count: usize::MAX,
                stride_c: 100,
                ..batch
            }
            .spans(&GEMM)
            .unwrap_err(),
        ];
        assert!(
            errors.iter().all(|error| error.kind() == ErrorKind::InvalidArgument),
            "{errors:?}"
        );
    }
}
