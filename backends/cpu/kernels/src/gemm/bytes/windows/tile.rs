//! Tiles of sums in registers.
#![allow(
    clippy::needless_range_loop,
    reason = "rows and registers of a tile are named by their indices"
)]

use super::super::dot::{Dot, NV, Work};

/// The distance in words to the filters that are prefetched: those of a model rarely fit the caches, and the processor
/// does not look ahead from page to page.
const AHEAD: usize = 1024;

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
    /// The initial value of each filter's sums.
    pub(super) starts: *const i32,
    /// Room for [`Dot::LANES`] sums of each place, filter by filter.
    pub(super) to: *mut i32,
}

impl Work for Multiply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let (pairs, rest) = self.places.as_chunks::<NV>();
        for (i, places) in pairs.iter().enumerate() {
            self.all(d, i * NV, *places);
        }
        for (i, &place) in rest.iter().enumerate() {
            self.all(d, pairs.len() * NV + i, [place]);
        }
    }
}

impl Multiply<'_> {
    /// Multiplies all filters by some registers, the first of which has index `at`.
    #[inline(always)]
    fn all<D: Dot, const N: usize>(&self, d: D, at: usize, places: [usize; N]) {
        let mut done = 0;
        while done < self.rows {
            // SAFETY: the creator of the work guarantees that its pointers cover the operands.
            done += unsafe { self.some(d, done, at, places) };
        }
    }

    /// Multiplies the largest tile of filters from `row` on by some registers. Returns the number of filters.
    ///
    /// # Safety
    /// The operands must have the filters and the places.
    #[inline(always)]
    unsafe fn some<D: Dot, const N: usize>(&self, d: D, row: usize, at: usize, places: [usize; N]) -> usize {
        macro_rules! sizes {
            ($($rows:literal)*) => {
                // The largest tile that fits.
                $(
                    if $rows <= D::ROWS && self.rows - row >= $rows {
                        // SAFETY: passed on.
                        unsafe { self.tile::<D, $rows, N>(d, row, at, places) };
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
    unsafe fn tile<D: Dot, const ROWS: usize, const N: usize>(&self, d: D, row: usize, at: usize, places: [usize; N]) {
        let mut acc = [[d.splat(0); N]; ROWS];
        let mut a = self.a.wrapping_add(row);
        let image = places.map(|place| self.image.wrapping_add(place));
        // SAFETY: all addresses are within the filters and the image, by the caller.
        unsafe {
            for i in 0..ROWS {
                acc[i] = [d.splat(self.starts.add(row + i).read().cast_unsigned()); N];
            }
            for &offset in self.offsets {
                prefetch(a.wrapping_add(AHEAD));
                let mut columns = [d.splat(0); N];
                for v in 0..N {
                    columns[v] = d.load(image[v].add(offset));
                }
                for i in 0..ROWS {
                    let x = d.splat(a.add(i).read());
                    for v in 0..N {
                        acc[i][v] = d.dot(acc[i][v], columns[v], x);
                    }
                }
                a = a.wrapping_add(self.step);
            }
            for i in 0..ROWS {
                for v in 0..N {
                    let to = self.to.add(((row + i) * self.places.len() + at + v) * D::LANES);
                    d.store_part(to, D::LANES, acc[i][v]);
                }
            }
        }
    }
}

/// Prefetches the words at an address, which need not be valid.
#[inline(always)]
fn prefetch(at: *const u32) {
    // SAFETY: every processor of this architecture has the instruction, which does not fault.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
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

/// Converts sums to bytes: times a scale for each filter, plus a zero point. This is a pass of its own, since the
/// compiler would keep a tile that also converts in memory instead of in registers.
pub(super) struct Finish {
    pub(super) rows: usize,
    pub(super) sums: *const i32,
    /// Sums of a filter, which [`Dot::LANES`] divides.
    pub(super) count: usize,
    pub(super) scales: *const f32,
    pub(super) zero: u8,
    /// The destination of the first filter's bytes; those of the next filter follow after `to_row` bytes.
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
