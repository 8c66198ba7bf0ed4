//! f16 and bf16 by way of f32.

use half::slice::HalfFloatSliceExt;
use polygrad_core::{DType, bf16, f16};

/// Elements that are converted at a time; three buffers of them stay in the first-level cache.
pub(crate) const BLOCK: usize = 256;

/// Which of the 16-bit floats.
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
    /// `n` elements must be readable at `from`, `n` f32 initialized and writable at `to`.
    pub(crate) unsafe fn widen(self, from: *const u8, to: *mut f32, n: usize) {
        // SAFETY: by the caller.
        unsafe {
            let to = std::slice::from_raw_parts_mut(to, n);
            match self {
                Self::F16 => std::slice::from_raw_parts(from.cast::<f16>(), n).convert_to_f32_slice(to),
                Self::BF16 => {
                    for (to, from) in to.iter_mut().zip(std::slice::from_raw_parts(from.cast::<bf16>(), n)) {
                        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
                    }
                }
            }
        }
    }

    /// Rounds `n` elements to the nearest, halves to even.
    ///
    /// # Safety
    /// `n` f32 must be readable at `from`, `n` elements writable at `to`.
    pub(crate) unsafe fn narrow(self, from: *const f32, to: *mut u8, n: usize) {
        // SAFETY: by the caller; any bits are a valid 16-bit float, so that the target counts as initialized once zeroed.
        unsafe {
            let from = std::slice::from_raw_parts(from, n);
            std::ptr::write_bytes(to, 0, 2 * n);
            match self {
                Self::F16 => std::slice::from_raw_parts_mut(to.cast::<f16>(), n).convert_from_f32_slice(from),
                Self::BF16 => std::slice::from_raw_parts_mut(to.cast::<bf16>(), n).convert_from_f32_slice(from),
            }
        }
    }

    /// Runs a kernel of f32 on 16-bit floats: each of `n` elements is widened, computed and rounded once.
    ///
    /// # Safety
    /// `n` elements must be readable at each input and writable at `to`; `kernel` must be right for f32.
    pub(crate) unsafe fn run<const N: usize>(
        self,
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
                unsafe { self.widen(from[k].add(2 * start), inputs[k].as_mut_ptr(), count) };
                wide[k] = inputs[k].as_ptr().cast();
            }
            kernel(wide, output.as_mut_ptr().cast(), count);
            // SAFETY: likewise for the output.
            unsafe { self.narrow(output.as_ptr(), to.add(2 * start), count) };
        }
    }
}
