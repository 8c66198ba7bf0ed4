//! Three loops.

use polygrad_core::Result;

use super::{Dims, Gemm, Mat, MatMut, Update};
use crate::CpuDevice;
use crate::loops::Pointer;

/// The plain form, which the others are checked against. f32 adds up in f64.
pub(crate) struct Plain;

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl Gemm<$type> for Plain {
            unsafe fn gemm(
                &self,
                device: CpuDevice,
                dims: Dims,
                a: Mat<$type>,
                b: Mat<$type>,
                c: MatMut<$type>,
                update: Update<$type>,
            ) -> Result<()> {
                let Update { alpha, beta, bias } = update;
                let bias = Pointer(bias.cast_mut());
                let biased = !bias.0.is_null();
                let bias_at = |j: usize| {
                    // SAFETY: the bias has `n` elements.
                    if biased { unsafe { f64::from(bias.at(j).read()) } } else { 0.0 }
                };
                device.each(dims.m, (dims.n * dims.k) as f32, |i| {
                    for j in 0..dims.n {
                        let mut sum = 0.0;
                        for p in 0..dims.k {
                            // SAFETY: all indices are inside the matrices; tasks write rows of their own.
                            sum += unsafe { f64::from(a.at(i, p).read()) * f64::from(b.at(p, j).read()) };
                        }
                        let to = c.at(i, j);
                        // SAFETY: as above.
                        unsafe {
                            let old = if beta == 0.0 { 0.0 } else { f64::from(beta) * f64::from(to.read()) };
                            to.write((f64::from(alpha) * sum + old + bias_at(j)) as $type);
                        }
                    }
                });
                Ok(())
            }
        }
    )*};
}

plain!(f32 f64);
