//! Products of rows of bytes and rows of a weight that are the lanes of registers.

use super::Weight;
use super::input::Input;
use crate::gemm::bytes::{Dot, Work};

/// Rows of a weight as lanes: the registers of their words and of their blocks' factors.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pub(super) words: *const u32,
    pub(super) scales: Numbers,
    /// `None` if there is a single integer zero point.
    pub(super) zeros: Option<Numbers>,
    /// The distance from a register to the next, in words.
    pub(super) step: usize,
    /// The distance from a register of words to the one that is prefetched, in words.
    pub(super) ahead: usize,
}

/// Where numbers lie that become registers of f32.
#[derive(Clone, Copy)]
pub(super) enum Numbers {
    Floats(*const f32),
    Halves(*const u16),
}

impl Numbers {
    /// Those `by` numbers further.
    pub(super) fn moved(self, by: usize) -> Self {
        match self {
            Self::Floats(at) => Self::Floats(at.wrapping_add(by)),
            Self::Halves(at) => Self::Halves(at.wrapping_add(by)),
        }
    }

    /// The register that begins `at` numbers further.
    ///
    /// # Safety
    /// Its numbers must be readable.
    #[inline(always)]
    unsafe fn load<D: Dot>(self, d: D, at: usize) -> D::F {
        // SAFETY: by the caller.
        unsafe {
            match self {
                Self::Floats(from) => d.load_floats(from.add(at)),
                Self::Halves(from) => d.load_halves(from.add(at)),
            }
        }
    }
}

/// All rows of X times some rows of a weight.
pub(super) struct Times<'a> {
    pub(super) weight: &'a Weight,
    pub(super) input: &'a Input,
    pub(super) registers: Registers,
    /// The number of rows of the weight; lanes after them are not written.
    pub(super) count: usize,
    /// The destination of the first row's results, and the distance to the next row's.
    pub(super) to: (*mut f32, usize),
}

/// Rows of X that are multiplied together where registers are many: enough to hide the time of an instruction, and as
/// batches of 32 have no rows left over. Twelve are no faster by themselves.
const ROWS: usize = 8;

impl Work for Times<'_> {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        match self.weight.scheme.bits() {
            4 => self.all::<D, 4>(d),
            _ => self.all::<D, 8>(d),
        }
    }
}

impl Times<'_> {
    #[inline(always)]
    fn all<D: Dot, const BITS: usize>(&self, d: D) {
        let rows = self.input.rows;
        let mut row = 0;
        while D::LANES == 16 && rows - row >= ROWS {
            self.some::<D, BITS, ROWS>(d, row);
            row += ROWS;
        }
        while rows - row >= 4 {
            self.some::<D, BITS, 4>(d, row);
            row += 4;
        }
        while row < rows {
            self.some::<D, BITS, 1>(d, row);
            row += 1;
        }
    }

    /// Computes `R` rows from `row` on.
    #[inline(always)]
    fn some<D: Dot, const BITS: usize, const R: usize>(&self, d: D, row: usize) {
        let (input, size) = (self.input, self.weight.scheme.size());
        let Registers { step, ahead, .. } = self.registers;
        let words = size / (32 / BITS);
        // Else the words are read again, for other rows of X or for other lanes of their cache line.
        let once = R == 1 && D::LANES == 16 && input.rows == 1;
        // Registers unpacked from each word.
        let parts = 32 / BITS / D::GROUP;
        let x: [_; R] = std::array::from_fn(|r| input.words(row + r));
        let scales: [_; R] = std::array::from_fn(|r| input.scales(row + r));
        let starts: [_; R] = std::array::from_fn(|r| input.starts(row + r));
        let sums: [_; R] = std::array::from_fn(|r| input.sums(row + r));
        let mut total = [d.float(d.splat(0)); R];
        for block in 0..self.weight.blocks() {
            // SAFETY: there is a register for each word and block, rows of X have a word for each part of it; a row has
            // sums if there are zero points.
            unsafe {
                let mut sum: [D::V; R] = std::array::from_fn(|r| d.splat(starts[r].add(block).read()));
                for word in block * words..(block + 1) * words {
                    let from = self.registers.words.add(word * step);
                    prefetch(from.wrapping_add(ahead), once);
                    let numbers = d.load(from);
                    // A macro instead of a closure: a closure called this often is not inlined and would lack the
                    // target's instructions.
                    macro_rules! add {
                        ($($part:literal: $numbers:expr),*) => { $(
                            let numbers = $numbers;
                            for (sum, x) in sum.iter_mut().zip(x) {
                                *sum = d.dot(*sum, numbers, d.splat(x.add(word * parts + $part).read()));
                            }
                        )* };
                    }
                    match (BITS, D::GROUP) {
                        (8, 4) => {
                            add!(0: numbers);
                        }
                        (8, _) => {
                            let mask = 0x00ff_00ff;
                            add!(0: d.part::<0>(numbers, mask), 1: d.part::<8>(numbers, mask));
                        }
                        (_, 4) => {
                            let mask = 0x0f0f_0f0f;
                            add!(0: d.part::<0>(numbers, mask), 1: d.part::<4>(numbers, mask));
                        }
                        _ => {
                            let mask = 0x000f_000f;
                            add!(0: d.part::<0>(numbers, mask), 1: d.part::<4>(numbers, mask));
                            add!(2: d.part::<8>(numbers, mask), 3: d.part::<12>(numbers, mask));
                        }
                    }
                }
                let scale = self.registers.scales.load(d, block * step);
                for r in 0..R {
                    let factor = d.times(scale, d.splat_float(scales[r].add(block).read()));
                    total[r] = d.add_times(d.float(sum[r]), factor, total[r]);
                }
                if let Some(zeros) = self.registers.zeros {
                    let zero = d.times(scale, zeros.load(d, block * step));
                    for (total, sums) in total.iter_mut().zip(sums) {
                        let sum = sums.map_or(0.0, |sums| sums.add(block).read());
                        *total = d.add_times(zero, d.splat_float(sum), *total);
                    }
                }
            }
        }
        for (r, total) in total.into_iter().enumerate() {
            // SAFETY: the result has the row, and a place for each row of the weight.
            unsafe { d.store_floats(self.to.0.add((row + r) * self.to.1), self.count, total) };
        }
    }
}

/// Prefetches the cache line with this word, which need not be readable: past the second-level cache if it is read
/// `once`, since the weight would evict all else.
#[inline(always)]
fn prefetch(at: *const u32, once: bool) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, which has no visible effect and does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_NTA, _MM_HINT_T0, _mm_prefetch};
        match once {
            true => _mm_prefetch::<_MM_HINT_NTA>(at.cast()),
            false => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, once);
}
