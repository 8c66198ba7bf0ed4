//! Tiles of a product in registers.
#![allow(
    clippy::needless_range_loop,
    reason = "rows and registers of a tile are named by their indices"
)]

use super::dot::{Dot, NV, Work};

/// Two products of a factor per row and a factor per column that are added to the result, to account for the zero
/// points and the offset of the signed operand. The pointers of a product that is always 0 are null.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) rows: [*const i32; 2],
    /// As many for each panel as it has columns.
    pub(super) columns: [*const i32; 2],
}

// SAFETY: terms are only read.
unsafe impl Sync for Terms {}

impl Terms {
    /// The terms for a part of the result.
    pub(super) fn at(self, row: usize, column: usize) -> Self {
        let moved = |ptr: *const i32, by: usize| match ptr.is_null() {
            true => ptr,
            false => ptr.wrapping_add(by),
        };
        Self {
            rows: self.rows.map(|ptr| moved(ptr, row)),
            columns: self.columns.map(|ptr| moved(ptr, column)),
        }
    }
}

/// Tiles of rows times panels, tile by tile.
pub(super) struct Rows {
    /// Number of rows; each tile has [`Dot::ROWS`], except the last.
    pub(super) rows: usize,
    /// Words along `k`.
    pub(super) groups: usize,
    /// One word per row, group by group within a tile, and tile by tile; groups are `step` words apart. All rows of a
    /// tile share one base address, so that the compiler generates the intended loop.
    pub(super) a: *const u32,
    pub(super) step: usize,
    pub(super) b: *const u32,
    pub(super) to: *mut i32,
    pub(super) to_row: usize,
    /// Columns of the panels that the result has.
    pub(super) n: usize,
    pub(super) terms: Terms,
}

impl Work for Rows {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        for tile in 0..self.rows.div_ceil(D::ROWS) {
            let start = tile * D::ROWS;
            let rows = D::ROWS.min(self.rows - start);
            for column in (0..self.n).step_by(NV * D::LANES) {
                let mut done = 0;
                while done < rows {
                    let a = self.a.wrapping_add(tile * self.step * self.groups + done);
                    // SAFETY: the caller that makes the work guarantees that its pointers cover the operands.
                    done += unsafe { self.some(d, a, (start + done, column), rows - done) };
                }
            }
        }
    }
}

impl Rows {
    /// Some of `rows` rows from a row on, times the panel that begins with a column, and how many.
    ///
    /// # Safety
    /// The operands must have the rows, the groups and the columns.
    #[inline(always)]
    unsafe fn some<D: Dot>(&self, d: D, a: *const u32, place: (usize, usize), rows: usize) -> usize {
        macro_rules! sizes {
            ($($rows:literal)*) => {
                // The largest tile that fits.
                $(
                    if $rows <= D::ROWS && rows >= $rows {
                        // SAFETY: passed on.
                        unsafe { self.tile::<D, $rows>(d, a, place) };
                        return $rows;
                    }
                )*
            };
        }
        sizes!(12 8 6 4 2 1);
        rows
    }

    /// # Safety
    /// As for [`Rows::some`].
    #[inline(always)]
    unsafe fn tile<D: Dot, const ROWS: usize>(&self, d: D, mut a: *const u32, (row, column): (usize, usize)) {
        let mut acc = [[d.splat(0); NV]; ROWS];
        let mut b = self.b.wrapping_add(column * self.groups);
        // SAFETY: all addresses are within the rows and the panel, by the caller.
        unsafe {
            for _ in 0..self.groups {
                let mut columns = [d.splat(0); NV];
                for v in 0..NV {
                    columns[v] = d.load(b.add(v * D::LANES));
                }
                for i in 0..ROWS {
                    let x = d.splat(a.add(i).read());
                    for v in 0..NV {
                        acc[i][v] = d.dot(acc[i][v], x, columns[v]);
                    }
                }
                a = a.wrapping_add(self.step);
                b = b.wrapping_add(NV * D::LANES);
            }
            let terms = self.terms.at(row, column);
            for (rows, from) in terms.rows.into_iter().zip(terms.columns) {
                if rows.is_null() {
                    continue;
                }
                let mut columns = [d.splat(0); NV];
                for v in 0..NV {
                    columns[v] = d.load(from.add(v * D::LANES).cast());
                }
                for i in 0..ROWS {
                    let x = d.splat(rows.add(i).read().cast_unsigned());
                    for v in 0..NV {
                        acc[i][v] = d.mul_add(x, columns[v], acc[i][v]);
                    }
                }
            }
            for i in 0..ROWS {
                for v in 0..NV {
                    let column = column + v * D::LANES;
                    let n = self.n.saturating_sub(column).min(D::LANES);
                    let to = self.to.wrapping_add((row + i) * self.to_row + column);
                    d.store_part(to, n, acc[i][v]);
                }
            }
        }
    }
}
