//! Tiles of sums in registers.
#![allow(
    clippy::needless_range_loop,
    reason = "rows and registers of a tile are named by their indices"
)]

use super::super::dot::{Dot, NV, Work};

/// A tile of filters times the positions of some registers.
pub(super) struct Multiply<'a> {
    /// Filters, at most [`Dot::ROWS`].
    pub(super) rows: usize,
    /// One word for each filter; the next words are `step` words apart.
    pub(super) a: *const u32,
    pub(super) step: usize,
    pub(super) image: *const u32,
    /// See [`Layout`](super::layout::Layout).
    pub(super) offsets: &'a [usize],
    /// See [`Chunk`](super::layout::Chunk).
    pub(super) places: &'a [usize],
    /// What the sums of each filter begin with.
    pub(super) starts: *const i32,
    /// Room for [`Dot::LANES`] sums of each place, filter by filter.
    pub(super) to: *mut i32,
}

impl Work for Multiply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        for (i, places) in self.places.as_chunks::<NV>().0.iter().enumerate() {
            let mut done = 0;
            while done < self.rows {
                // SAFETY: the creator of the work guarantees that its pointers cover the operands.
                done += unsafe { self.some(d, done, i, *places) };
            }
        }
    }
}

impl Multiply<'_> {
    /// Some filters from one on times [`NV`] registers, and how many filters.
    ///
    /// # Safety
    /// The operands must have the filters and the places.
    #[inline(always)]
    unsafe fn some<D: Dot>(&self, d: D, row: usize, at: usize, places: [usize; NV]) -> usize {
        macro_rules! sizes {
            ($($rows:literal)*) => {
                // The largest tile that fits.
                $(
                    if $rows <= D::ROWS && self.rows - row >= $rows {
                        // SAFETY: passed on.
                        unsafe { self.tile::<D, $rows>(d, row, at, places) };
                        return $rows;
                    }
                )*
            };
        }
        sizes!(12 8 6 4 2 1);
        self.rows
    }

    /// # Safety
    /// As for [`Multiply::some`].
    #[inline(always)]
    unsafe fn tile<D: Dot, const ROWS: usize>(&self, d: D, row: usize, at: usize, places: [usize; NV]) {
        let mut acc = [[d.splat(0); NV]; ROWS];
        let mut a = self.a.wrapping_add(row);
        let image = places.map(|place| self.image.wrapping_add(place));
        // SAFETY: all addresses are within the filters and the image, by the caller.
        unsafe {
            for i in 0..ROWS {
                acc[i] = [d.splat(self.starts.add(row + i).read().cast_unsigned()); NV];
            }
            for &offset in self.offsets {
                let mut columns = [d.splat(0); NV];
                for v in 0..NV {
                    columns[v] = d.load(image[v].add(offset));
                }
                for i in 0..ROWS {
                    let x = d.splat(a.add(i).read());
                    for v in 0..NV {
                        acc[i][v] = d.dot(acc[i][v], columns[v], x);
                    }
                }
                a = a.wrapping_add(self.step);
            }
            for i in 0..ROWS {
                for v in 0..NV {
                    let to = self.to.add(((row + i) * self.places.len() + at * NV + v) * D::LANES);
                    d.store_part(to, D::LANES, acc[i][v]);
                }
            }
        }
    }
}

/// Adds a factor for each filter times a number for each position to sums.
pub(super) struct AddColumns {
    pub(super) rows: usize,
    pub(super) factors: *const i32,
    pub(super) columns: *const i32,
    /// Sums of a filter, which [`Dot::LANES`] divides.
    pub(super) count: usize,
    pub(super) sums: *mut i32,
}

impl Work for AddColumns {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        for row in 0..self.rows {
            for at in (0..self.count).step_by(D::LANES) {
                // SAFETY: the creator of the work guarantees that there are as many sums, columns and factors.
                unsafe {
                    let factor = d.splat(self.factors.add(row).read().cast_unsigned());
                    let column = d.load(self.columns.add(at).cast());
                    let to = self.sums.add(row * self.count + at);
                    let sum = d.mul_add(factor, column, d.load(to.cast_const().cast()));
                    d.store_part(to, D::LANES, sum);
                }
            }
        }
    }
}

/// Makes bytes of sums: times a scale for each filter, plus a zero point. A pass of its own, since the compiler leaves
/// tiles in memory that do so in their registers.
pub(super) struct Finish {
    pub(super) rows: usize,
    pub(super) sums: *const i32,
    /// Sums of a filter, which [`Dot::LANES`] divides.
    pub(super) count: usize,
    pub(super) scales: *const f32,
    pub(super) zero: u8,
    /// Where the bytes of a filter go, `to_row` apart.
    pub(super) to: *mut u8,
    pub(super) to_row: usize,
}

impl Work for Finish {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let zero = d.splat_float(f32::from(self.zero));
        for row in 0..self.rows {
            // SAFETY: the creator of the work guarantees that there are as many sums and scales, and room.
            unsafe {
                let scale = d.splat_float(self.scales.add(row).read());
                for at in (0..self.count).step_by(D::LANES) {
                    let sums = d.load(self.sums.add(row * self.count + at).cast());
                    d.store_bytes(self.to.add(row * self.to_row + at), d.times(d.float(sums), scale), zero);
                }
            }
        }
    }
}
