//! f16 and bf16, computed in f32.

use half::slice::HalfFloatSliceExt;
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
            // SAFETY: by the caller; all bits zero are the number 0.
            Self::F16 => unsafe {
                to.write_bytes(0, n);
                let to = std::slice::from_raw_parts_mut(to, n);
                std::slice::from_raw_parts(from.cast::<f16>(), n).convert_to_f32_slice(to);
            },
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
            // SAFETY: by the caller; all bits zero are the number 0.
            Self::F16 => unsafe {
                to.write_bytes(0, 2 * n);
                let to = std::slice::from_raw_parts_mut(to.cast::<f16>(), n);
                to.convert_from_f32_slice(std::slice::from_raw_parts(from, n));
            },
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
