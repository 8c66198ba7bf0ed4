//! Products of integer matrices, with wrapping arithmetic.

use polygrad_core::{Element, Result, Shape};

use super::matmul::Stack;
use crate::CpuTensor;
use crate::Pointer;
use crate::gemm::Dims;

/// Columns and terms of the right-hand side that stay in the cache while the rows of the left-hand side are processed.
const COLUMNS: usize = 512;
const TERMS: usize = 64;
/// Approximate nanoseconds per multiplication.
const NS: f32 = 0.4;

/// An integer type with arithmetic modulo its width.
pub(super) trait Integer: Element + Copy + Default {
    /// `self + a · b`, truncated to the width.
    fn plus_product(self, a: Self, b: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Integer for $type {
            #[inline(always)]
            fn plus_product(self, a: $type, b: $type) -> $type {
                self.wrapping_add(a.wrapping_mul(b))
            }
        }
    )*};
}

integers! { u8 i32 i64 }

/// `[…, m, k] × […, k, n]` where the leading axes broadcast to `batch`, into a new output.
pub(super) fn matmul<T: Integer>(
    a: &CpuTensor,
    b: &CpuTensor,
    out: &mut CpuTensor,
    batch: &Shape,
    Dims { m, n, k }: Dims,
) -> Result<()> {
    let device = out.device();
    if batch.numel() * m * n == 0 {
        return Ok(());
    }
    // Contiguous rows, since the innermost loops run along them.
    let (a, b) = (&a.contiguous()?, &b.contiguous()?);
    let (left, right) = (Stack::new(a, batch), Stack::new(b, batch));
    let (x, y) = (a.slice::<T>()?, b.slice::<T>()?);
    let to = Pointer(out.ptr_mut().cast::<T>());
    device.split(batch.numel() * m, NS * (n * k) as f32, 1, |start, end| {
        // SAFETY: the output is new and holds `n` elements for each row, and each stretch of rows is one task's.
        let out = unsafe {
            to.at(start * n).write_bytes(0, (end - start) * n);
            std::slice::from_raw_parts_mut(to.at(start * n), (end - start) * n)
        };
        for column in (0..n).step_by(COLUMNS) {
            let last_column = n.min(column + COLUMNS);
            for term in (0..k).step_by(TERMS) {
                let last_term = k.min(term + TERMS);
                for (row, out) in (start..end).zip(out.chunks_exact_mut(n)) {
                    let (matrix, row) = (row / m, row % m);
                    let x = &x[left.offset(batch, matrix).cast_unsigned() + row * k..][term..last_term];
                    let y = &y[right.offset(batch, matrix).cast_unsigned()..];
                    for (p, &x) in (term..last_term).zip(x) {
                        let y = &y[p * n..][column..last_column];
                        for (sum, &y) in out[column..last_column].iter_mut().zip(y) {
                            *sum = sum.plus_product(x, y);
                        }
                    }
                }
            }
        }
    });
    Ok(())
}
