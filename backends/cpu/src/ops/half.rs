//! f16 and bf16, computed in f32.

use polygrad_core::{DType, f16};

use crate::CpuTensor;
use crate::simd::{Kernel, Level, Simd};

/// Elements that are converted at a time; three buffers of this size stay in the first-level cache.
pub(crate) const BLOCK: usize = 256;

/// A 16-bit float format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    F16,
    BF16,
}

impl Half {
    pub(crate) fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::BF16),
            _ => None,
        }
    }

    /// Widens `n` elements.
    ///
    /// # Safety
    /// `n` elements must be readable at `from`, `n` f32 writable at `to`.
    pub(crate) unsafe fn widen(self, level: Option<Level>, from: *const u8, to: *mut f32, n: usize) {
        match self {
            Self::F16 => Level::run_loops(
                level,
                WidenF16 {
                    from: from.cast(),
                    to,
                    n,
                },
            ),
            Self::BF16 => {
                let (from, to) = (from.cast(), to.cast());
                Level::run_loops(level, WidenBf16 { from, to, n });
            }
        }
    }

    /// Rounds `n` elements to the nearest, ties to even.
    ///
    /// # Safety
    /// `n` f32 must be readable at `from`, `n` elements writable at `to`.
    pub(crate) unsafe fn narrow(self, level: Option<Level>, from: *const f32, to: *mut u8, n: usize) {
        match self {
            Self::F16 => Level::run_loops(level, NarrowF16 { from, to: to.cast(), n }),
            Self::BF16 => {
                let (from, to) = (from.cast(), to.cast());
                Level::run_loops(level, NarrowBf16 { from, to, n });
            }
        }
    }

    /// Runs an f32 kernel on 16-bit floats: each of `n` elements is widened, computed, and rounded once.
    ///
    /// # Safety
    /// `n` elements must be readable at each input and writable at `to`; `kernel` must be right for f32.
    pub(crate) unsafe fn run<const N: usize>(
        self,
        level: Option<Level>,
        from: [*const u8; N],
        to: *mut u8,
        n: usize,
        kernel: impl Fn([*const u8; N], *mut u8, usize),
    ) {
        let mut inputs = [[0f32; BLOCK]; N];
        let mut output = [0f32; BLOCK];
        for start in (0..n).step_by(BLOCK) {
            let count = BLOCK.min(n - start);
            let mut wide = [std::ptr::null(); N];
            for k in 0..N {
                // SAFETY: `count` elements from `start` on are inside the input, and the block holds as many.
                unsafe { self.widen(level, from[k].add(2 * start), inputs[k].as_mut_ptr(), count) };
                wide[k] = inputs[k].as_ptr().cast();
            }
            kernel(wide, output.as_mut_ptr().cast(), count);
            // SAFETY: as above, for the output.
            unsafe { self.narrow(level, output.as_ptr(), to.add(2 * start), count) };
        }
    }
}

/// The f32 form of a weight of 16 bits, which is kept with it, since each product needs it.
pub(crate) struct Wide(pub(crate) CpuTensor);

/// Widens f16, a register at a time.
struct WidenF16 {
    from: *const f16,
    to: *mut f32,
    n: usize,
}

impl Kernel for WidenF16 {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let whole = self.n / S::N * S::N;
        let mut last = [f16::ZERO; 16];
        // SAFETY: `widen` guarantees that the pointers are valid; no register is longer than 16 elements.
        unsafe {
            for i in (0..whole).step_by(S::N) {
                s.store(self.to.add(i), s.load_f16(self.from.add(i)));
            }
            let left = self.n - whole;
            if left > 0 {
                last.as_mut_ptr().copy_from_nonoverlapping(self.from.add(whole), left);
                s.store_part(self.to.add(whole), left, s.load_f16(last.as_ptr()));
            }
        }
    }
}

/// Rounds to f16, a register at a time.
struct NarrowF16 {
    from: *const f32,
    to: *mut f16,
    n: usize,
}

impl Kernel for NarrowF16 {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let whole = self.n / S::N * S::N;
        let mut last = [f16::ZERO; 16];
        // SAFETY: `narrow` guarantees that the pointers are valid; no register is longer than 16 elements.
        unsafe {
            for i in (0..whole).step_by(S::N) {
                s.store_f16(self.to.add(i), s.load(self.from.add(i)));
            }
            let left = self.n - whole;
            if left > 0 {
                s.store_f16(last.as_mut_ptr(), s.load_part(self.from.add(whole), left));
                self.to.add(whole).copy_from_nonoverlapping(last.as_ptr(), left);
            }
        }
    }
}

/// Turns the bits of bf16 into those of f32.
struct WidenBf16 {
    from: *const u16,
    to: *mut u32,
    n: usize,
}

impl Kernel for WidenBf16 {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for i in 0..self.n {
            // SAFETY: `widen` guarantees that the pointers are valid.
            unsafe { self.to.add(i).write(u32::from(self.from.add(i).read()) << 16) };
        }
    }
}

/// Turns the bits of f32 into those of bf16: the nearest, ties to even. A NaN stays a NaN, and becomes quiet.
struct NarrowBf16 {
    from: *const u32,
    to: *mut u16,
    n: usize,
}

impl Kernel for NarrowBf16 {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        const INFINITY: u32 = 0x7f80_0000;
        const QUIET: u32 = 0x40_0000;
        for i in 0..self.n {
            // SAFETY: `narrow` guarantees that the pointers are valid.
            unsafe {
                let x = self.from.add(i).read();
                let is_nan = x & !(1 << 31) > INFINITY;
                let rounded = x.wrapping_add(0x7fff + (x >> 16 & 1));
                let bits = if is_nan { x | QUIET } else { rounded };
                self.to.add(i).write((bits >> 16) as u16);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use polygrad_core::bf16;

    use super::*;

    #[test]
    fn f16_is_rounded_and_widened_as_the_crate_half_does() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        // Each number, and what lies halfway to the next one, with the closest numbers on both sides.
        let near = |x: &f16| {
            let (bits, halfway) = (x.to_f32().to_bits(), x.to_f32().to_bits() ^ 0x1000);
            [bits, halfway, halfway.wrapping_sub(1), halfway.wrapping_add(1)].map(f32::from_bits)
        };
        let mut from: Vec<f32> = all.iter().flat_map(near).collect();
        from.extend([1e30, -1e30, 65519.9, 65520.0, 3e-8, 2.9e-8, 1e-10, f32::MIN_POSITIVE]);
        for level in Level::available().into_iter().map(Some).chain([None]) {
            for n in [from.len(), 1, 7, 19] {
                let (mut narrow, mut wide) = (vec![f16::ZERO; n], vec![0_f32; n]);
                // SAFETY: all three have as many elements.
                unsafe {
                    Half::F16.narrow(level, from.as_ptr(), narrow.as_mut_ptr().cast(), n);
                    Half::F16.widen(level, narrow.as_ptr().cast(), wide.as_mut_ptr(), n);
                }
                for ((&x, &got), &back) in from.iter().zip(&narrow).zip(&wide) {
                    let wanted = f16::from_f32(x);
                    assert_eq!(got.to_bits(), wanted.to_bits(), "{x:e} with {level:?}");
                    assert_eq!(back.to_bits(), got.to_f32().to_bits(), "{got:e} with {level:?}");
                }
            }
        }
    }

    #[test]
    fn bf16_is_rounded_as_the_crate_half_rounds() {
        let near = |bits: u32| {
            [
                bits,
                bits.wrapping_sub(1),
                bits.wrapping_add(1),
                bits ^ 0x8000,
                bits ^ 1 << 31,
            ]
        };
        let bits: Vec<u32> = (0..=u16::MAX)
            .flat_map(|high| near(u32::from(high) << 16 | 0x8000))
            .collect();
        let from: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits)).collect();
        for level in Level::available().into_iter().map(Some).chain([None]) {
            let (mut narrow, mut wide) = (vec![0_u16; from.len()], vec![0_f32; from.len()]);
            // SAFETY: all three have as many elements.
            unsafe {
                Half::BF16.narrow(level, from.as_ptr(), narrow.as_mut_ptr().cast(), from.len());
                Half::BF16.widen(level, narrow.as_ptr().cast(), wide.as_mut_ptr(), from.len());
            }
            for ((&x, &got), &back) in from.iter().zip(&narrow).zip(&wide) {
                let wanted = bf16::from_f32(x);
                assert_eq!(got, wanted.to_bits(), "{x:e} with {level:?}");
                assert_eq!(back.to_bits(), u32::from(got) << 16);
            }
        }
    }
}
