//! Products by three nested loops.

use polygrad_core::Result;

use super::{Dims, Gemm, Mat, MatMut, Real, Update};
use crate::CpuDevice;
use crate::Pointer;

/// The plain form, the reference for the others. It sums in f64.
pub struct Plain;

impl<T: Real> Gemm<T> for Plain {
    unsafe fn gemm(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<T>,
        b: Mat<T>,
        c: MatMut<T>,
        update: Update<T>,
    ) -> Result<()> {
        let Update { alpha, beta, bias } = update;
        let (biased, bias) = (!bias.is_null(), Pointer(bias.cast_mut()));
        device.each(dims.m, (dims.n * dims.k) as f32, |i| {
            for j in 0..dims.n {
                let mut sum = 0.0;
                for p in 0..dims.k {
                    // SAFETY: all indices are inside the matrices; each task writes rows of its own.
                    sum += unsafe { a.at(i, p).read().widened() * b.at(p, j).read().widened() };
                }
                sum *= alpha.widened();
                let to = c.at(i, j);
                // SAFETY: as above; the bias has `n` elements.
                unsafe {
                    if beta != T::ZERO {
                        sum += beta.widened() * to.read().widened();
                    }
                    if biased {
                        sum += bias.at(j).read().widened();
                    }
                    to.write(T::rounded(sum));
                }
            }
        });
        Ok(())
    }
}
