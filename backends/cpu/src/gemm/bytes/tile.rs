//! Tiles of a product in registers.
#![allow(
    clippy::needless_range_loop,
    reason = "rows and registers of a tile are named by their indices"
)]

use super::dot::{Dot, NV, Work};
use crate::gemm::packed::tiles;

/// Groups of a pass of the innermost loop.
const UNROLL: usize = 4;

/// Two products of a factor for each row with one for each column, which are added to the result: what the zero points
/// and the offset of the signed operand come to. A pair that is all zeros is null.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) rows: [*const i32; 2],
    /// As many for each panel as it has columns.
    pub(super) columns: [*const i32; 2],
}

// SAFETY: terms are only read.
unsafe impl Sync for Terms {}

impl Terms {
    /// Those of a part of the result.
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

/// Rows of words times a panel.
pub(super) struct Rows {
    pub(super) rows: usize,
    /// Words along `k`.
    pub(super) groups: usize,
    /// The words of a row follow each other; rows are `a_row` bytes apart.
    pub(super) a: *const u8,
    pub(super) a_row: usize,
    /// Whether the rows hold the signed numbers, and not the panel.
    pub(super) signed_rows: bool,
    pub(super) b: *const u32,
    pub(super) to: *mut i32,
    pub(super) to_row: usize,
    /// Columns of the panel that the result has.
    pub(super) n: usize,
    pub(super) terms: Terms,
}

impl Work for Rows {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let (count, first) = tiles(self.rows, D::ROWS);
        for tile in 0..count {
            let mut row = first(tile);
            let end = first(tile + 1);
            while row < end {
                // SAFETY: whoever makes the work answers for its operands.
                row += unsafe { self.some(d, row, end - row) };
            }
        }
    }
}

impl Rows {
    /// Some of `rows` rows, and how many.
    ///
    /// # Safety
    /// The operands must have the rows, the groups and the columns.
    #[inline(always)]
    unsafe fn some<D: Dot>(&self, d: D, row: usize, rows: usize) -> usize {
        macro_rules! sizes {
            ($($rows:literal)*) => {
                // The largest that is not too large.
                $(
                    if $rows <= D::ROWS && rows >= $rows {
                        // SAFETY: passed on.
                        unsafe {
                            if self.signed_rows {
                                self.tile::<D, $rows, true>(d, row);
                            } else {
                                self.tile::<D, $rows, false>(d, row);
                            }
                        }
                        return $rows;
                    }
                )*
            };
        }
        sizes!(12 10 8 6 4 2 1);
        rows
    }

    /// One group of each row times that of the panel.
    ///
    /// # Safety
    /// The rows must have a word at `a`, the panel a group at `b`.
    #[inline(always)]
    unsafe fn step<D: Dot, const ROWS: usize, const SIGNED_ROWS: bool>(
        &self,
        d: D,
        acc: &mut [[D::V; NV]; ROWS],
        a: *const u8,
        b: *const u32,
    ) {
        // SAFETY: by the caller.
        unsafe {
            let columns: [D::V; NV] = std::array::from_fn(|v| d.load(b.add(v * D::LANES)));
            for i in 0..ROWS {
                let x = d.splat(a.add(i * self.a_row).cast::<u32>().read_unaligned());
                for v in 0..NV {
                    acc[i][v] = match SIGNED_ROWS {
                        true => d.dot(acc[i][v], columns[v], x),
                        false => d.dot(acc[i][v], x, columns[v]),
                    };
                }
            }
        }
    }

    /// # Safety
    /// As for [`Rows::some`].
    #[inline(always)]
    unsafe fn tile<D: Dot, const ROWS: usize, const SIGNED_ROWS: bool>(&self, d: D, row: usize) {
        let mut acc = [[d.splat(0); NV]; ROWS];
        let mut a = self.a.wrapping_add(row * self.a_row);
        let mut b = self.b;
        // SAFETY: all addresses are within the rows and the panel, by the caller.
        unsafe {
            // Several groups at a time, since rows have an address each, and each address moves once for all of them.
            for _ in 0..self.groups / UNROLL {
                for group in 0..UNROLL {
                    self.step::<D, ROWS, SIGNED_ROWS>(d, &mut acc, a.add(4 * group), b.add(group * NV * D::LANES));
                }
                a = a.wrapping_add(4 * UNROLL);
                b = b.wrapping_add(UNROLL * NV * D::LANES);
            }
            for group in 0..self.groups % UNROLL {
                self.step::<D, ROWS, SIGNED_ROWS>(d, &mut acc, a.add(4 * group), b.add(group * NV * D::LANES));
            }
            let terms = self.terms.at(row, 0);
            for (rows, columns) in terms.rows.into_iter().zip(terms.columns) {
                if rows.is_null() {
                    continue;
                }
                let columns: [D::V; NV] = std::array::from_fn(|v| d.load(columns.add(v * D::LANES).cast()));
                for i in 0..ROWS {
                    let x = d.splat(rows.add(i).read().cast_unsigned());
                    for v in 0..NV {
                        acc[i][v] = d.mul_add(x, columns[v], acc[i][v]);
                    }
                }
            }
            for i in 0..ROWS {
                for v in 0..NV {
                    let n = self.n.saturating_sub(v * D::LANES).min(D::LANES);
                    let to = self.to.wrapping_add((row + i) * self.to_row + v * D::LANES);
                    d.store_part(to, n, acc[i][v]);
                }
            }
        }
    }
}
