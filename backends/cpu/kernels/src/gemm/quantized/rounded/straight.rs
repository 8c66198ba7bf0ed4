//! One row of X times a weight whose rows are read as they lie, with AVX-512 VNNI.
//!
//! For a single row, it costs more to transpose the weight than to multiply it. Here a register holds numbers of one
//! row of the weight, and the sums are transposed: those of sixteen rows and four blocks become a register for each
//! block, with a lane for each row. Everything else is as in [`Times`](super::times::Times), so that results have the
//! same bits.

use std::arch::x86_64::*;
use std::sync::OnceLock;

use polygrad_core::Result;

use super::input::Input;
use super::{Factors, Weight, Words};
use crate::{CpuDevice, Pointer};

/// Rows of the weight that are multiplied together, and words in a register.
const ROWS: usize = 16;

/// Blocks of a row that are multiplied together.
const BLOCKS: usize = 4;

/// Bytes of a cache line.
const LINE: usize = 64;

/// How many rows ahead words are prefetched, to the second-level cache: the first-level cache waits for too few lines
/// at a time.
const AHEAD: usize = 2 * ROWS;

/// A row of X in the order of the weight's registers.
pub(super) struct Straight<'a> {
    weight: &'a Weight,
    input: &'a Input,
    /// Registers of the weight that hold [`BLOCKS`] blocks of a row.
    registers: usize,
    /// The words that multiply them, two registers for each of 4-bit numbers: one for the even numbers, one for the odd
    /// ones. After the row's end there are zeros.
    x: Words,
}

impl<'a> Straight<'a> {
    /// `None` if the weight's blocks do not fill four or eight lanes.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) fn new(weight: &'a Weight, input: &'a Input) -> Result<Option<Self>> {
        let (bits, size) = (weight.scheme.bits(), weight.scheme.size());
        let registers = match (bits, size) {
            (4, 32) | (8, 16) => 1,
            (8, 32) => 2,
            _ => return Ok(None),
        };
        let words = weight.blocks().next_multiple_of(BLOCKS) * size / 4;
        let x = Words::new(words)?;
        for i in 0..words {
            let from = match bits {
                // Words of even and of odd numbers alternate.
                4 => i / (2 * ROWS) * 2 * ROWS + i % ROWS * 2 + i / ROWS % 2,
                _ => i,
            };
            // SAFETY: there is room for `words` words, and the input's row has `step`.
            unsafe {
                let word = if from < input.step {
                    input.words(0).add(from).read()
                } else {
                    0
                };
                x.ptr::<u32>().add(i).write(word);
            }
        }
        Ok(Some(Self {
            weight,
            input,
            registers,
            x,
        }))
    }

    /// Computes all results.
    ///
    /// # Safety
    /// The CPU must have the instructions, and `to` must have room for the results.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) unsafe fn run(&self, device: CpuDevice, to: *mut f32) -> Result<()> {
        let (n, to) = (self.weight.n, Pointer(to));
        let failed = OnceLock::new();
        device.split(
            n.div_ceil(ROWS),
            (self.weight.k * ROWS) as f32 * 0.01,
            1,
            |first, end| {
                // For scales and zero points, and what is read after their end.
                let room = match Words::new(2 * self.room_step()) {
                    Ok(room) => room,
                    Err(error) => {
                        let _ = failed.set(error);
                        return;
                    }
                };
                // The first rows, which no rows before them prefetch.
                let words = self.weight.words();
                let from = self.weight.bytes.cast::<u32>().wrapping_add(first * ROWS * words);
                for line in 0..AHEAD.min(n - first * ROWS) * words / ROWS {
                    // SAFETY: the CPU has the instruction, which has no visible effect and does not fault.
                    unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(line * ROWS).cast()) };
                }
                for row in (first * ROWS..n.min(end * ROWS)).step_by(ROWS) {
                    // SAFETY: the rows are inside the weight, and the rest by the caller.
                    unsafe { self.rows((row, ROWS.min(n - row)), &room, to.at(row)) };
                }
            },
        );
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn room_step(&self) -> usize {
        ROWS * self.weight.blocks() + BLOCKS
    }

    /// Computes the results of rows `first..first + count` of the weight; `count` is from 1 to [`ROWS`].
    ///
    /// # Safety
    /// The CPU must have the instructions, the rows must be inside the weight, and `to` must have room for the results.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vnni")]
    unsafe fn rows(&self, rows: (usize, usize), room: &Words, to: *mut f32) {
        // SAFETY: passed on.
        unsafe {
            match (self.weight.scheme.bits(), self.registers, self.input.sums(0)) {
                (4, _, None) => self.some::<4, 1, false>(rows, room.ptr(), to),
                (4, _, _) => self.some::<4, 1, true>(rows, room.ptr(), to),
                (_, 1, None) => self.some::<8, 1, false>(rows, room.ptr(), to),
                (_, 1, _) => self.some::<8, 1, true>(rows, room.ptr(), to),
                (_, _, None) => self.some::<8, 2, false>(rows, room.ptr(), to),
                (..) => self.some::<8, 2, true>(rows, room.ptr(), to),
            }
        }
    }

    /// [`Self::rows`] for numbers of `BITS` bits, whose blocks have zero points of their own if `ZEROS`.
    #[inline(always)]
    unsafe fn some<const BITS: usize, const REGISTERS: usize, const ZEROS: bool>(
        &self,
        (first, count): (usize, usize),
        scales: *mut f32,
        to: *mut f32,
    ) {
        let weight = self.weight;
        let (blocks, words, zeros) = (weight.blocks(), weight.words(), scales.wrapping_add(self.room_step()));
        // SAFETY: the rows by the caller; there is room for their factors.
        unsafe {
            let mut ahead = 0;
            if first + AHEAD + ROWS <= weight.n {
                ahead = AHEAD * words;
                // Scales alone come early enough by themselves.
                if ZEROS {
                    let next = ((first + AHEAD) * blocks, ROWS * blocks);
                    prefetch(weight.scales, next);
                    prefetch(weight.zeros, next);
                }
            }
            read(weight.scales, (first * blocks, count * blocks), scales);
            match weight.zeros.single() {
                Some(zero) if ZEROS => (0..count * blocks).for_each(|i| zeros.add(i).write(zero)),
                None if ZEROS => read(weight.zeros, (first * blocks, count * blocks), zeros),
                _ => {}
            }
            let rows = Rows::<BITS, REGISTERS, ZEROS> {
                from: weight.bytes.cast::<u32>().add(first * words),
                // Lanes without a row repeat the last one.
                at: std::array::from_fn(|row| row.min(count - 1)),
                words,
                ahead,
                blocks,
                x: self.x.ptr(),
                x_scales: self.input.scales(0),
                x_starts: self.input.starts(0),
                x_sums: self.input.sums(0).unwrap_or(std::ptr::null()),
                scales,
                zeros,
            };
            let mut total = _mm512_setzero_ps();
            let whole = blocks - blocks % BLOCKS;
            for block in (0..whole).step_by(BLOCKS) {
                total = rows.add::<true>(block, total);
            }
            if whole < blocks {
                total = rows.add::<false>(whole, total);
            }
            _mm512_mask_storeu_ps(to, mask(count), total);
        }
    }
}

/// Some rows of a weight, and what they are multiplied by.
struct Rows<const BITS: usize, const REGISTERS: usize, const ZEROS: bool> {
    from: *const u32,
    at: [usize; ROWS],
    words: usize,
    /// The distance to the words that are prefetched, in words; 0 if there are no such rows.
    ahead: usize,
    blocks: usize,
    x: *const u32,
    x_scales: *const f32,
    x_starts: *const u32,
    x_sums: *const f32,
    scales: *const f32,
    zeros: *const f32,
}

impl<const BITS: usize, const REGISTERS: usize, const ZEROS: bool> Rows<BITS, REGISTERS, ZEROS> {
    /// Adds the products of [`BLOCKS`] blocks from `block` on, or of those up to the rows' end unless `WHOLE`.
    ///
    /// # Safety
    /// The CPU must have the instructions, and the rows have the blocks.
    #[inline(always)]
    unsafe fn add<const WHOLE: bool>(&self, block: usize, mut total: __m512) -> __m512 {
        let step = block / BLOCKS * REGISTERS;
        // SAFETY: the last blocks' registers are loaded in part, except those of X, which has zeros there; factors are
        // followed by room that may be read.
        unsafe {
            let x = self.x.add(step * ROWS * 8 / BITS);
            let mut sums = [_mm512_setzero_si512(); ROWS];
            for (sum, row) in sums.iter_mut().zip(self.at) {
                let from = self.from.add(row * self.words + step * ROWS);
                for i in 0..REGISTERS {
                    _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(self.ahead + i * ROWS).cast());
                }
                let left = self.words - step * ROWS;
                *sum = self.products::<WHOLE>(from, left, x);
            }
            let sums = transposed(sums);
            let scales = self.factors(self.scales.add(block));
            let zeros = if ZEROS {
                self.factors(self.zeros.add(block))
            } else {
                scales
            };
            for i in 0..BLOCKS {
                if WHOLE || block + i < self.blocks {
                    let start = _mm512_set1_epi32(self.x_starts.add(block + i).read().cast_signed());
                    let sum = _mm512_cvtepi32_ps(_mm512_add_epi32(sums[i], start));
                    let factor = _mm512_mul_ps(scales[i], _mm512_set1_ps(self.x_scales.add(block + i).read()));
                    total = _mm512_fmadd_ps(sum, factor, total);
                    if ZEROS {
                        let zero = _mm512_mul_ps(scales[i], zeros[i]);
                        total = _mm512_fmadd_ps(zero, _mm512_set1_ps(self.x_sums.add(block + i).read()), total);
                    }
                }
            }
        }
        total
    }

    /// The sums of products of [`BLOCKS`] blocks of a row, four lanes each. The row has `left` more words.
    #[inline(always)]
    unsafe fn products<const WHOLE: bool>(&self, from: *const u32, left: usize, x: *const u32) -> __m512i {
        // SAFETY: by the caller.
        unsafe {
            let zero = _mm512_setzero_si512();
            let load = |i: usize| match WHOLE {
                true => _mm512_loadu_si512(from.add(i * ROWS).cast()),
                false => {
                    _mm512_maskz_loadu_epi32(mask(left.saturating_sub(i * ROWS)), from.wrapping_add(i * ROWS).cast())
                }
            };
            let x = |i: usize| _mm512_loadu_si512(x.add(i * ROWS).cast());
            let first = load(0);
            if BITS == 4 {
                let low = _mm512_set1_epi8(15);
                let even = _mm512_dpbusd_epi32(zero, _mm512_and_si512(first, low), x(0));
                return _mm512_dpbusd_epi32(even, _mm512_and_si512(_mm512_srli_epi16::<4>(first), low), x(1));
            }
            let first = _mm512_dpbusd_epi32(zero, first, x(0));
            if REGISTERS == 1 {
                return first;
            }
            // Eight lanes for each block become four.
            let second = _mm512_dpbusd_epi32(zero, load(1), x(1));
            let [low, high] = [
                _mm512_shuffle_i32x4::<0x88>(first, second),
                _mm512_shuffle_i32x4::<0xdd>(first, second),
            ];
            _mm512_add_epi32(low, high)
        }
    }

    /// A register for each of [`BLOCKS`] blocks, whose lanes are the rows' factors.
    #[inline(always)]
    unsafe fn factors(&self, from: *const f32) -> [__m512; BLOCKS] {
        // SAFETY: by the caller.
        unsafe {
            let four = |row: usize| _mm_loadu_ps(from.add(self.at[row] * self.blocks));
            let mut fours = [_mm512_setzero_ps(); 4];
            for (i, to) in fours.iter_mut().enumerate() {
                // Quarter j has row 4 j + i.
                let two = _mm512_insertf32x4::<1>(_mm512_castps128_ps512(four(i)), four(i + 4));
                *to = _mm512_insertf32x4::<3>(_mm512_insertf32x4::<2>(two, four(i + 8)), four(i + 12));
            }
            let [a, b, c, d] = fours;
            let low = [_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d)].map(|x| _mm512_castps_pd(x));
            let high = [_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d)].map(|x| _mm512_castps_pd(x));
            [
                _mm512_castpd_ps(_mm512_unpacklo_pd(low[0], low[1])),
                _mm512_castpd_ps(_mm512_unpackhi_pd(low[0], low[1])),
                _mm512_castpd_ps(_mm512_unpacklo_pd(high[0], high[1])),
                _mm512_castpd_ps(_mm512_unpackhi_pd(high[0], high[1])),
            ]
        }
    }
}

/// From a register for each row with four lanes for each block to a register for each block with a lane for each row,
/// which is the sum of the four.
#[inline(always)]
unsafe fn transposed(rows: [__m512i; ROWS]) -> [__m512i; BLOCKS] {
    let mut fours = [rows[0]; 4];
    // SAFETY: the CPU has the instructions, by the caller.
    unsafe {
        for (i, to) in fours.iter_mut().enumerate() {
            let [a, b, c, d] = [rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]];
            let first = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let second = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            // Quarter j has block j of four rows.
            *to = _mm512_add_epi32(
                _mm512_unpacklo_epi64(first, second),
                _mm512_unpackhi_epi64(first, second),
            );
        }
        let [a, b, c, d] = fours;
        let low = [_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d)];
        let high = [_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d)];
        [
            _mm512_shuffle_i32x4::<0x88>(low[0], low[1]),
            _mm512_shuffle_i32x4::<0xdd>(low[0], low[1]),
            _mm512_shuffle_i32x4::<0x88>(high[0], high[1]),
            _mm512_shuffle_i32x4::<0xdd>(high[0], high[1]),
        ]
    }
}

/// Reads the factors of `count` blocks from number `first` on as f32.
///
/// # Safety
/// The CPU must have the instructions; the factors must be readable, and `to` have room for them.
#[inline(always)]
unsafe fn read(factors: Factors, (first, count): (usize, usize), to: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        let mut done = 0;
        if let Some(from) = factors.halves(first) {
            while done + ROWS <= count {
                let halves = _mm256_loadu_si256(from.add(done).cast());
                _mm512_storeu_ps(to.add(done), _mm512_cvtph_ps(halves));
                done += ROWS;
            }
        }
        factors.read(first + done, count - done, to.add(done));
    }
}

/// Prefetches the factors of `count` blocks from number `first` on to the second-level cache.
///
/// # Safety
/// The CPU must have the instruction.
#[inline(always)]
unsafe fn prefetch(factors: Factors, (first, count): (usize, usize)) {
    let (from, bytes) = factors.bytes(first, count);
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: by the caller; a prefetch has no visible effect and does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(at).cast()) };
    }
}

/// The lowest `count` lanes, or all 16 for more.
#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count >= ROWS { !0 } else { (1 << count) - 1 }
}
