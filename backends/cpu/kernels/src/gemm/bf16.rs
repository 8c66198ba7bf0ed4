//! Products of bf16 with AVX512-BF16, whose instruction adds the products of two pairs in f32.
//!
//! A result is summed in f32 along the whole of `k`, and rounded once. The instruction treats subnormal operands as 0
//! and flushes subnormal results to 0.
#![allow(
    clippy::needless_range_loop,
    reason = "rows and registers of a tile are named by their indices"
)]

use std::arch::x86_64::*;

use polygrad_core::Result;

use super::packed::tiles;
use super::{Dims, Mat, MatMut, Panels, Strided, cost};
use crate::Pointer;
use crate::buffers::Buffer;
use crate::simd::{Kernel, Simd};
use crate::{CpuDevice, Kernels, Level};

/// Registers in a row of a tile.
const NV: usize = 2;
/// Columns of a tile.
const NR: usize = 16 * NV;
/// Rows of a tile: 24 of 32 registers for C, beside 2 for B and some for A.
const MR: usize = 12;
/// The most rows of a task.
const BAND: usize = 96;

/// Two bf16 that are adjacent along `k`, the first in the lower half.
type Pair = u32;

/// A token: the device's kernels may use the instructions.
#[derive(Clone, Copy)]
pub(super) struct DotBf16(());

impl DotBf16 {
    pub(super) fn of(device: CpuDevice) -> Option<Self> {
        let has = device.kernels() == Kernels::Simd
            && device.level() == Level::Avx512
            && is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        has.then_some(Self(()))
    }

    /// `C ← A B`, plus the bias in each row unless it is null. Matrices hold the bits of bf16.
    ///
    /// # Safety
    /// A, B and `n` elements of the bias must be readable; C must be writable, apart from them, and have contiguous
    /// rows.
    ///
    /// # Errors
    /// When memory runs out.
    pub(super) unsafe fn gemm(
        self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<u16>,
        b: Mat<u16>,
        c: MatMut<u16>,
        bias: *const u16,
    ) -> Result<()> {
        let Dims { m, n, k } = dims;
        if m == 0 || n == 0 {
            return Ok(());
        }
        let pairs = k.div_ceil(2);
        let panels = n.div_ceil(NR);
        let room = |count: usize| Buffer::alloc((count * pairs * size_of::<Pair>()).max(1));
        let packed_b = room(panels * NR)?;
        let to_b = Pointer(packed_b.as_ptr().cast::<Pair>());
        // SAFETY: B has the columns, and the buffer room for each panel.
        device.each(panels, (pairs * NR) as f32 * 0.2, |panel| unsafe {
            let columns = (panel * NR, NR.min(n - panel * NR));
            self.pack(device, b, k, columns, NR, to_b.at(panel * NR * pairs));
        });
        let (count, first) = tiles(m, MR);
        let packed_a;
        let left = match in_pairs(a.transposed(), k) {
            Some(pairs) => Left {
                ptr: pairs.ptr.cast(),
                row: pairs.cols,
                pair: 1,
                tile: None,
            },
            None => {
                packed_a = room(count * MR)?;
                let to = Pointer(packed_a.as_ptr().cast::<Pair>());
                // SAFETY: A has the rows, and the buffer has room for each tile.
                device.each(count, (pairs * MR) as f32 * 0.2, |tile| unsafe {
                    let rows = (first(tile), first(tile + 1) - first(tile));
                    self.pack(device, a.transposed(), k, rows, MR, to.at(tile * MR * pairs));
                });
                Left {
                    ptr: to.0.cast_const(),
                    row: 1,
                    pair: MR.cast_signed(),
                    tile: Some(MR * pairs),
                }
            }
        };
        let threads = device.threads();
        let bands = m.div_ceil(BAND);
        let wanted = if threads == 1 { 1 } else { 2 * threads };
        let parts = wanted.div_ceil(bands).min(panels);
        let each = panels.div_ceil(parts);
        let ns = cost(dims, device.level()) / (2 * bands * parts) as f32;
        let bias = Pointer(bias.cast_mut());
        device.each(bands * parts, ns, |task| {
            let (band, part) = (task / parts, task % parts);
            let tiles = (band * count / bands)..((band + 1) * count / bands);
            for panel in (part * each)..((part + 1) * each).min(panels) {
                let column = panel * NR;
                for tile in tiles.clone() {
                    let (start, end) = (first(tile), first(tile + 1));
                    let task = Tile {
                        pairs,
                        a: left.at(tile, start),
                        a_row: left.row,
                        a_pair: left.pair,
                        b: to_b.at(column * pairs).cast_const(),
                        to: c.at(start, column),
                        to_row: c.rows,
                        n: NR.min(n - column),
                        bias: if bias.0.is_null() { bias.0 } else { bias.at(column) },
                    };
                    // SAFETY: the token says that the CPU has the instructions; the tile is inside the matrices, and
                    // belongs to one task.
                    unsafe { task.rows(end - start) };
                }
            }
        });
        Ok(())
    }

    /// Packs columns of a matrix of `k` rows: for each pair of rows the pairs of all columns, in a row of `width`
    /// elements whose rest is 0.
    ///
    /// # Safety
    /// The matrix must have the columns, and `to` room for `width` of each pair.
    unsafe fn pack(
        self,
        device: CpuDevice,
        from: Mat<u16>,
        k: usize,
        columns: (usize, usize),
        width: usize,
        to: *mut Pair,
    ) {
        let (start, count) = columns;
        // SAFETY: by the caller; the token says that the CPU has the instructions.
        unsafe {
            if let Some(pairs) = in_pairs(from, k) {
                device.level().run(PackPairs {
                    from: Strided(pairs),
                    pairs: k / 2,
                    columns,
                    width,
                    to: to.cast(),
                });
            } else if from.cols == 1 {
                interleave(from.moved(start.cast_signed()), k, count, width, to);
            } else {
                one_by_one(from, k, columns, width, to);
            }
        }
    }
}

/// Reinterprets a matrix of `k` rows as one of pairs, if its columns consist of aligned pairs.
fn in_pairs(x: Mat<u16>, k: usize) -> Option<Mat<f32>> {
    let fits = x.rows == 1 && k.is_multiple_of(2) && x.cols % 2 == 0 && x.ptr.cast::<Pair>().is_aligned();
    fits.then(|| Mat::new(x.ptr.cast(), 1, x.cols / 2))
}

/// Packs pairs as if they were f32.
struct PackPairs {
    from: Strided<f32>,
    pairs: usize,
    columns: (usize, usize),
    width: usize,
    to: *mut f32,
}

impl Kernel for PackPairs {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the caller of `pack` guarantees the columns and the room.
        unsafe { self.from.pack(s, (0, self.pairs), self.columns, self.width, self.to) };
    }
}

/// [`DotBf16::pack`] for a matrix with contiguous rows.
///
/// # Safety
/// As for [`DotBf16::pack`], for columns from 0 on; the CPU must have AVX-512F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn interleave(from: Mat<u16>, k: usize, count: usize, width: usize, to: *mut Pair) {
    for pair in 0..k.div_ceil(2) {
        for column in (0..width).step_by(16) {
            let lanes = |limit: usize| ((1u32 << 16.min(limit.saturating_sub(column))) - 1) as u16;
            let (read, written) = (lanes(count), lanes(width));
            // SAFETY: lanes beyond the columns and beyond the width are not accessed.
            unsafe {
                let row = |row: usize| {
                    let narrow = _mm256_maskz_loadu_epi16(read, from.at(row, column).cast());
                    _mm512_cvtepu16_epi32(narrow)
                };
                let mut both = row(2 * pair);
                if 2 * pair + 1 < k {
                    both = _mm512_or_si512(both, _mm512_slli_epi32(row(2 * pair + 1), 16));
                }
                _mm512_mask_storeu_epi32(to.add(pair * width + column).cast(), written, both);
            }
        }
    }
}

/// [`DotBf16::pack`] for any matrix.
///
/// # Safety
/// As for [`DotBf16::pack`].
unsafe fn one_by_one(from: Mat<u16>, k: usize, (start, count): (usize, usize), width: usize, to: *mut Pair) {
    for pair in 0..k.div_ceil(2) {
        for column in 0..width {
            let at = |row: usize| {
                if column >= count || row >= k {
                    return 0;
                }
                // SAFETY: the matrix has the row and the column.
                Pair::from(unsafe { from.at(row, start + column).read() })
            };
            // SAFETY: by the caller.
            unsafe {
                to.add(pair * width + column)
                    .write(at(2 * pair) | at(2 * pair + 1) << 16)
            };
        }
    }
}

/// A in pairs: the distances to the next row and the next pair, and to the next tile if A is packed.
struct Left {
    ptr: *const Pair,
    row: isize,
    pair: isize,
    tile: Option<usize>,
}

// SAFETY: A is only read.
unsafe impl Sync for Left {}

impl Left {
    /// The first pair of tile number `tile`, whose first row is `row`.
    fn at(&self, tile: usize, row: usize) -> *const Pair {
        match self.tile {
            Some(step) => self.ptr.wrapping_add(tile * step),
            None => self.ptr.wrapping_offset(row.cast_signed() * self.row),
        }
    }
}

/// A tile of C, and its operands.
struct Tile {
    pairs: usize,
    a: *const Pair,
    a_row: isize,
    a_pair: isize,
    b: *const Pair,
    to: *mut u16,
    to_row: isize,
    n: usize,
    bias: *const u16,
}

impl Tile {
    /// The product for `rows` rows, at most [`MR`].
    ///
    /// # Safety
    /// A must have the rows, C the rows and `n` columns, B [`NR`] columns; the CPU must have AVX-512F, BW, VL and BF16.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn rows(mut self, mut rows: usize) {
        macro_rules! tiles_of {
            ($($rows:literal)*) => {
                while rows > 0 {
                    // Splits a number of rows without its own kernel into two halves.
                    let step = if [$($rows),*].contains(&rows) { rows } else { rows.div_ceil(2) };
                    match (step, self.n > 16) {
                        $(
                            // SAFETY: passed on.
                            ($rows, false) => unsafe { self.product::<$rows, 1>() },
                            // SAFETY: passed on.
                            ($rows, true) => unsafe { self.product::<$rows, 2>() },
                        )*
                        _ => unreachable!("a tile has at most {MR} rows"),
                    }
                    rows -= step;
                    self.a = self.a.wrapping_offset(step.cast_signed() * self.a_row);
                    self.to = self.to.wrapping_offset(step.cast_signed() * self.to_row);
                }
            };
        }
        tiles_of!(1 2 3 4 5 6 8 10 12);
    }

    /// # Safety
    /// As for [`Tile::rows`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn product<const ROWS: usize, const NV: usize>(&self) {
        let last = self.n - (NV - 1) * 16;
        let mask = |v: usize| ((1u32 << if v + 1 == NV { last } else { 16 }) - 1) as u16;
        // SAFETY: all addresses are within the rows and the tile, by the caller; any bits are a register of bf16.
        unsafe {
            let mut acc = [[_mm512_setzero_ps(); NV]; ROWS];
            let (mut a, mut b) = (self.a, self.b);
            for _ in 0..self.pairs {
                let mut row = [_mm512_setzero_si512(); NV];
                for v in 0..NV {
                    row[v] = _mm512_loadu_si512(b.add(16 * v).cast());
                }
                for i in 0..ROWS {
                    let x = a.offset(i.cast_signed() * self.a_row).read();
                    let x = std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(x.cast_signed()));
                    for v in 0..NV {
                        acc[i][v] = _mm512_dpbf16_ps(acc[i][v], x, std::mem::transmute::<__m512i, __m512bh>(row[v]));
                    }
                }
                a = a.wrapping_offset(self.a_pair);
                b = b.add(NR);
            }
            for v in 0..NV {
                let bias = match self.bias.is_null() {
                    true => _mm512_setzero_ps(),
                    false => {
                        let bits = _mm256_maskz_loadu_epi16(mask(v), self.bias.add(16 * v).cast());
                        _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))
                    }
                };
                for i in 0..ROWS {
                    let sum = _mm512_add_ps(acc[i][v], bias);
                    let rounded = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(sum));
                    let to = self.to.offset(i.cast_signed() * self.to_row).add(16 * v);
                    _mm256_mask_storeu_epi16(to.cast(), mask(v), rounded);
                }
            }
        }
    }
}
