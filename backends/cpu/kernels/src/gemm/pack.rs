//! Sources of B: panels of its columns, each as wide as a tile, with contiguous rows.

use super::{Mat, Real};
use crate::simd::Lanes;

/// A matrix B that can be packed: a matrix in memory, or one that exists only as panels, such as the patches of an
/// image.
pub trait Panels<T>: Sync {
    /// Writes rows `row..row + rows` of columns `column..column + columns` to `to`, row by row. Each row is `width`
    /// elements long; elements beyond `columns` are set to 0.
    ///
    /// # Safety
    /// The matrix must have these rows and columns, and `to` room for `rows * width` elements.
    unsafe fn pack<L: Lanes<T = T>>(
        &self,
        l: L,
        rows: (usize, usize),
        columns: (usize, usize),
        width: usize,
        to: *mut T,
    );
}

/// A matrix in memory.
#[derive(Clone, Copy)]
pub struct Strided<T>(pub Mat<T>);

// SAFETY: the matrix is only read.
unsafe impl<T> Sync for Strided<T> {}

impl<T: Real> Panels<T> for Strided<T> {
    #[inline(always)]
    unsafe fn pack<L: Lanes<T = T>>(
        &self,
        l: L,
        (row, rows): (usize, usize),
        (column, columns): (usize, usize),
        width: usize,
        to: *mut T,
    ) {
        let b = self.0;
        // SAFETY: all elements are inside the matrix and the panel, by the caller.
        unsafe {
            if b.cols == 1 && columns == width && width.is_multiple_of(L::N) {
                for p in 0..rows {
                    for j in (0..width).step_by(L::N) {
                        l.store(to.add(p * width + j), l.load(b.at(row + p, column + j)));
                    }
                }
                return;
            }
            let squares = if b.rows == 1 { columns / L::N * L::N } else { 0 };
            let whole = rows / L::N * L::N;
            for j in (0..squares).step_by(L::N) {
                for p in (0..whole).step_by(L::N) {
                    l.transpose(b.at(row + p, column + j), b.cols, to.add(p * width + j), width);
                }
                for p in whole..rows {
                    for lane in j..j + L::N {
                        to.add(p * width + lane).write(b.at(row + p, column + lane).read());
                    }
                }
            }
            for p in 0..rows {
                for j in squares..columns {
                    to.add(p * width + j).write(b.at(row + p, column + j).read());
                }
                for j in columns..width {
                    to.add(p * width + j).write(T::ZERO);
                }
            }
        }
    }
}
