//! Products of a few rows and a weight, whose numbers become floats in registers.
//!
//! A 32-bit word holds neighbouring numbers of one block. Lane `i` of a register of words has word `i`, so that
//! shifting all lanes gives every eighth number for 4 bits, or every fourth for 8. The rows' numbers are brought into
//! that order once. With scales `s`, zero points `z` and any `c`
//!
//! ```text
//! Σ (q - z) s x = Σ over blocks of s (Σ (q - c) x) - s (z - c) Σ x
//! ```
//!
//! whose last term is 0 if `c` is the zero point, as for weights without zero points of their own.

use std::sync::OnceLock;

use polygrad_core::Result;

use super::Weight;
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::simd::{Kernel, Level, Simd};

/// The most rows. They are computed two at a time, so that the weight is read once per pair; for more rows, it is
/// cheaper to unpack the weight once.
pub(super) const FEW: usize = 16;

/// The count of numbers in the widest register of words.
const WIDEST: usize = 16 * 8;

/// The most lanes of a register.
const LANES: usize = 16;

/// The 4-bit numbers minus 8, twice, since a table index has five bits.
static FOUR_BITS: [f32; 32] = {
    let mut table = [0.0; 32];
    let mut i = 0;
    while i < 32 {
        table[i] = (i % 16) as f32 - 8.0;
        i += 1;
    }
    table
};

/// The least number of blocks whose scales are converted at a time. Their scales fit the first-level cache.
const AT_ONCE: usize = 1024;

/// `C = X Wᵀ` for `m` rows of X, at most [`FEW`].
///
/// # Safety
/// As for [`Weight::product`].
///
/// # Errors
/// If memory runs out.
pub(super) unsafe fn run(
    weight: &Weight,
    device: CpuDevice,
    level: Level,
    m: usize,
    x: *const f32,
    c: *mut f32,
) -> Result<()> {
    for first in (0..m).step_by(2) {
        let (x, c) = (x.wrapping_add(first * weight.k), c.wrapping_add(first * weight.n));
        // SAFETY: passed on, for one row or two.
        unsafe {
            match (weight.scheme.bits(), m - first) {
                (4, 1) => by::<4, 1>(weight, device, level, x, c),
                (4, _) => by::<4, 2>(weight, device, level, x, c),
                (_, 1) => by::<8, 1>(weight, device, level, x, c),
                (..) => by::<8, 2>(weight, device, level, x, c),
            }?;
        }
    }
    Ok(())
}

/// [`run`] for numbers of `BITS` bits and `M` rows.
unsafe fn by<const BITS: usize, const M: usize>(
    weight: &Weight,
    device: CpuDevice,
    level: Level,
    x: *const f32,
    c: *mut f32,
) -> Result<()> {
    let (n, k, blocks) = (weight.n, weight.k, weight.blocks());
    let (step, sums_step) = (k.next_multiple_of(WIDEST), blocks + LANES);
    let room = Buffer::alloc(M * (step + sums_step) * size_of::<f32>())?;
    let ordered = room.as_ptr().cast::<f32>();
    let sums = ordered.wrapping_add(M * step);
    level.run(Order::<BITS> {
        x,
        rows: M,
        k,
        size: weight.scheme.size(),
        to: (ordered, step),
        sums: (sums, sums_step),
    });
    let (x, sums, c) = (Pointer(ordered), Pointer(sums), Pointer(c));
    let group = (AT_ONCE / blocks.max(1) / 4).max(1) * 4;
    let failed = OnceLock::new();
    device.split(n, k as f32 * M as f32 * 0.03, 4, |first, end| {
        let scratch = match Buffer::alloc(2 * (group * blocks + LANES) * size_of::<f32>()) {
            Ok(scratch) => scratch,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        level.run(Rows::<BITS, M> {
            weight: *weight,
            x: (x.at(0), step),
            sums: (sums.at(0), sums_step),
            rows: (first, end),
            group,
            scratch: scratch.as_ptr().cast(),
            c: c.at(0),
        });
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Reorders rows to the order in which the numbers of words are unpacked, with zeros after their end, and writes the
/// negated sums of their blocks.
struct Order<const BITS: usize> {
    x: *const f32,
    rows: usize,
    k: usize,
    size: usize,
    to: (*mut f32, usize),
    sums: (*mut f32, usize),
}

impl<const BITS: usize> Kernel for Order<BITS> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            x,
            rows,
            k,
            size,
            to,
            sums,
        } = self;
        let per = 32 / BITS;
        let chunk = S::N * per;
        // SAFETY: rows have `k` elements, for which `to` has room in whole registers, and `sums` has room for each
        // block.
        unsafe {
            for row in 0..rows {
                let (x, to, sums) = (x.add(row * k), to.0.add(row * to.1), sums.0.add(row * sums.1));
                for start in (0..k).step_by(chunk) {
                    for i in 0..chunk {
                        let from = start + i % S::N * per + i / S::N;
                        to.add(start + i).write(if from < k { x.add(from).read() } else { 0.0 });
                    }
                }
                for block in 0..k / size {
                    let part = std::slice::from_raw_parts(x.add(block * size), size);
                    let mut lanes = [0f32; 16];
                    for sixteen in part.chunks_exact(16) {
                        lanes.iter_mut().zip(sixteen).for_each(|(sum, x)| *sum += x);
                    }
                    sums.add(block).write(-lanes.iter().sum::<f32>());
                }
            }
        }
    }
}

/// Columns of the result, which are rows of the weight.
struct Rows<const BITS: usize, const M: usize> {
    weight: Weight,
    /// The output of [`Order`], and the distance to the next row.
    x: (*const f32, usize),
    sums: (*const f32, usize),
    rows: (usize, usize),
    /// Rows whose scales are converted at a time.
    group: usize,
    /// Room for the scales and the zero points of a group, plus one register each.
    scratch: *mut f32,
    c: *mut f32,
}

/// Scales and zero points of the group's first row; `zeros` is unused if there is a single zero point.
#[derive(Clone, Copy)]
struct Group {
    scales: *const f32,
    zeros: *const f32,
    /// The single zero point of all blocks, minus `c`.
    zero: Option<f32>,
}

impl<const BITS: usize, const M: usize> Kernel for Rows<BITS, M> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let blocks = self.weight.blocks();
        let (first, end) = self.rows;
        let zeros = self.scratch.wrapping_add(self.group * blocks + LANES);
        // SAFETY: rows are inside the weight and the result; `scratch` has room for a group.
        unsafe {
            let zero = self.weight.zeros.single().map(|zero| zero - Self::centre::<S>());
            for start in (first..end).step_by(self.group) {
                let count = self.group.min(end - start);
                self.weight.scales.read(start * blocks, count * blocks, self.scratch);
                if zero.is_none() {
                    self.weight.zeros.read(start * blocks, count * blocks, zeros);
                }
                let group = Group {
                    scales: self.scratch,
                    zeros,
                    zero,
                };
                let at = |row: usize| Group {
                    scales: group.scales.add(row * blocks),
                    zeros: group.zeros.wrapping_add(row * blocks),
                    zero,
                };
                let fours = count - count % 4;
                for row in (0..fours).step_by(4) {
                    let sums = self.some::<S, 4>(s, start + row, at(row));
                    #[expect(clippy::needless_range_loop, reason = "a column of the sums")]
                    for m in 0..M {
                        let to = self.c.add(m * self.weight.n + start + row);
                        to.cast::<[f32; 4]>()
                            .write_unaligned(s.sums([sums[0][m], sums[1][m], sums[2][m], sums[3][m]]));
                    }
                }
                for row in fours..count {
                    let [sums] = self.some::<S, 1>(s, start + row, at(row));
                    for (m, sum) in sums.into_iter().enumerate() {
                        self.c.add(m * self.weight.n + start + row).write(s.sum(sum));
                    }
                }
            }
        }
    }
}

impl<const BITS: usize, const M: usize> Rows<BITS, M> {
    /// The `c` that is subtracted from numbers when they become floats.
    #[inline(always)]
    fn centre<S: Simd>() -> f32 {
        if BITS == 4 && S::PICKS { 8.0 } else { 0.0 }
    }

    /// The products of `R` rows of the weight, which the processor reads at the same time, and all rows of X. The lanes
    /// still have to be added up.
    #[inline(always)]
    unsafe fn some<S: Simd, const R: usize>(&self, s: S, row: usize, group: Group) -> [[S::V; M]; R] {
        let (k, size, blocks) = (self.weight.k, self.weight.scheme.size(), self.weight.blocks());
        let (per, n) = (32 / BITS, S::N);
        let shift = (size / per).ilog2();
        let words = k / per;
        let mut total = [[s.splat(0.0); M]; R];
        // SAFETY: each row has `words` words, `x` has registers for all of them, and scales have room for one register
        // more.
        unsafe {
            let from = self.weight.bytes.cast::<f32>().add(row * words);
            for word in (0..words).step_by(n) {
                let whole = words - word >= n;
                let mut read = [s.splat_int(0); R];
                for (i, read) in read.iter_mut().enumerate() {
                    let at = from.add(i * words + word);
                    *read = s.bits(if whole {
                        // Prefetches the rows after these, since the processor does not prefetch across pages.
                        s.prefetch(at.wrapping_add(R * words).cast());
                        s.load(at)
                    } else {
                        s.load_part(at, words - word)
                    });
                }
                let sums = self.chunk::<S, R>(s, read, word * per);
                let block = word * per / size;
                for (i, (total, sums)) in total.iter_mut().zip(sums).enumerate() {
                    let mut scales = group.scales.add(i * blocks + block);
                    let mut last = [0f32; LANES];
                    if !whole {
                        // Replaces the next row's scales, which may be anything, by zeros.
                        last.as_mut_ptr().copy_from_nonoverlapping(scales, blocks - block);
                        scales = last.as_ptr();
                    }
                    let scale = s.spread(scales, shift);
                    for (total, sum) in total.iter_mut().zip(sums) {
                        *total = s.mul_add(sum, scale, *total);
                    }
                }
            }
            for (i, total) in total.iter_mut().enumerate() {
                let of = Group {
                    scales: group.scales.add(i * blocks),
                    zeros: group.zeros.wrapping_add(i * blocks),
                    ..group
                };
                self.add_zeros(s, of, total);
            }
        }
        total
    }

    /// Adds the last term of the sum.
    #[inline(always)]
    unsafe fn add_zeros<S: Simd>(&self, s: S, group: Group, total: &mut [S::V; M]) {
        if group.zero == Some(0.0) {
            return;
        }
        let (blocks, centre) = (self.weight.blocks(), s.splat(Self::centre::<S>()));
        for block in (0..blocks).step_by(S::N) {
            let count = S::N.min(blocks - block);
            // SAFETY: the row has `count` more blocks from this one on.
            unsafe {
                let zeros = match group.zero {
                    Some(zero) => s.splat(zero),
                    None => s.sub(s.load_part(group.zeros.add(block), count), centre),
                };
                let factor = s.mul(s.load_part(group.scales.add(block), count), zeros);
                for (m, total) in total.iter_mut().enumerate() {
                    let sums = self.sums.0.add(m * self.sums.1 + block);
                    *total = s.mul_add(factor, s.load_part(sums, count), *total);
                }
            }
        }
    }

    /// The products of a register of words of each of `R` rows; the first number has index `at` in its row.
    #[inline(always)]
    unsafe fn chunk<S: Simd, const R: usize>(&self, s: S, words: [S::I; R], at: usize) -> [[S::V; M]; R] {
        let mut sums = [[s.splat(0.0); M]; R];
        macro_rules! add {
            ($($place:literal by $shift:literal),*) => { $(
                let mut x = [s.splat(0.0); M];
                for (m, x) in x.iter_mut().enumerate() {
                    // SAFETY: by the caller.
                    *x = unsafe { s.load(self.x.0.add(m * self.x.1 + at + $place * S::N)) };
                }
                for (sums, words) in sums.iter_mut().zip(words) {
                    let shifted = s.shr::<$shift>(words);
                    let number = match BITS == 4 && S::PICKS {
                        true => s.pick(&FOUR_BITS, shifted),
                        false => s.from_int(s.and_int(shifted, s.splat_int((1 << BITS) - 1))),
                    };
                    for (sum, x) in sums.iter_mut().zip(x) {
                        *sum = s.mul_add(number, x, *sum);
                    }
                }
            )* };
        }
        match BITS {
            4 => {
                add!(0 by 0, 1 by 4, 2 by 8, 3 by 12, 4 by 16, 5 by 20, 6 by 24, 7 by 28);
            }
            _ => {
                add!(0 by 0, 1 by 8, 2 by 16, 3 by 24);
            }
        }
        sums
    }
}
