//! Matrix products by a CBLAS library.

use std::ffi::c_int;

use polygrad_core::Result;

use super::{Dims, Gemm, Mat, MatMut, Packed, Real, Update};
use crate::CpuDevice;

/// Products by the linked library, which chooses its number of threads by its own environment variables.
pub(super) struct Blas;

const ROW_MAJOR: c_int = 101;
const PLAIN: c_int = 111;
const TRANSPOSED: c_int = 112;

/// The signature of `cblas_sgemm` and `cblas_dgemm`.
pub(super) type Product<T> = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    T,
    *const T,
    c_int,
    *const T,
    c_int,
    T,
    *mut T,
    c_int,
);

macro_rules! declare {
    ($name:ident $type:ty) => {
        unsafe extern "C" {
            pub(super) fn $name(
                order: c_int,
                transpose_a: c_int,
                transpose_b: c_int,
                m: c_int,
                n: c_int,
                k: c_int,
                alpha: $type,
                a: *const $type,
                a_step: c_int,
                b: *const $type,
                b_step: c_int,
                beta: $type,
                c: *mut $type,
                c_step: c_int,
            );
        }
    };
}

declare!(cblas_sgemm f32);
declare!(cblas_dgemm f64);

/// How to pass a matrix of some rows and columns to CBLAS: as it is or transposed, and the stride of its rows as
/// passed. `None` if neither rows nor columns are contiguous, or a number is too large.
fn form(rows: isize, cols: isize, (height, width): (usize, usize)) -> Option<(c_int, c_int)> {
    let fits = |step: isize, least: usize| {
        let step = c_int::try_from(step).ok()?;
        (step >= c_int::try_from(least.max(1)).ok()?).then_some(step)
    };
    // The stride of a single row or column has no meaning.
    if cols == 1 || width == 1 {
        let step = if height == 1 { width.cast_signed().max(1) } else { rows };
        if let Some(step) = fits(step, width) {
            return Some((PLAIN, step));
        }
    }
    if rows == 1 || height == 1 {
        let step = if width == 1 { height.cast_signed().max(1) } else { cols };
        return fits(step, height).map(|step| (TRANSPOSED, step));
    }
    None
}

impl<T: Real> Gemm<T> for Blas {
    unsafe fn gemm(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<T>,
        b: Mat<T>,
        c: MatMut<T>,
        update: Update<T>,
    ) -> Result<()> {
        let Dims { m, n, k } = dims;
        let sizes = [m, n, k].map(c_int::try_from);
        let forms = [
            form(a.rows, a.cols, (m, k)),
            form(b.rows, b.cols, (k, n)),
            form(c.rows, c.cols, (m, n)),
        ];
        let (&[Ok(m_), Ok(n_), Ok(k_)], [Some((ta, lda)), Some((tb, ldb)), Some((PLAIN, ldc))], true) =
            (&sizes, forms, k > 0)
        else {
            // CBLAS has no call for this layout.
            // SAFETY: passed on.
            return unsafe { Packed(device.level()).gemm(device, dims, a, b, c, update) };
        };
        let mut beta = update.beta;
        if !update.bias.is_null() {
            for i in 0..m {
                // SAFETY: the bias has `n` elements, and so has each row of C, which is contiguous.
                unsafe { std::ptr::copy_nonoverlapping(update.bias, c.at(i, 0), n) };
            }
            beta = T::ONE;
        }
        // SAFETY: the strides are those of the matrices, which the caller guarantees to be readable and writable.
        unsafe {
            T::CBLAS(
                ROW_MAJOR,
                ta,
                tb,
                m_,
                n_,
                k_,
                update.alpha,
                a.ptr,
                lda,
                b.ptr,
                ldb,
                beta,
                c.ptr,
                ldc,
            )
        };
        Ok(())
    }
}
