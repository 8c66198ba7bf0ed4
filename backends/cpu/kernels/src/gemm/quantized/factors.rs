//! Scales and zero points.

use polygrad_core::DType;

use crate::simd::of_f16;

/// A number for each block of a weight, one after another, or a single one for all blocks.
#[derive(Clone, Copy)]
pub struct Factors {
    ptr: *const u8,
    kind: Kind,
    one: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    U8,
    F16,
    Bf16,
    F32,
}

impl Factors {
    /// Numbers of a dtype that start at an address, or a single one for all blocks if `one`. `None` for dtypes that do
    /// not convert to f32.
    pub fn new(dtype: DType, ptr: *const u8, one: bool) -> Option<Self> {
        let kind = match dtype {
            DType::U8 => Kind::U8,
            DType::F16 => Kind::F16,
            DType::BF16 => Kind::Bf16,
            DType::F32 => Kind::F32,
            _ => return None,
        };
        Some(Self { ptr, kind, one })
    }

    /// The single number of all blocks, if there is one.
    ///
    /// # Safety
    /// The number must be readable.
    #[inline(always)]
    pub(super) unsafe fn single(self) -> Option<f32> {
        // SAFETY: by the caller.
        self.one.then(|| unsafe { self.get(0) })
    }

    /// The address of the numbers from `start` on, if they are f32 and each block has its own.
    #[inline(always)]
    pub(super) fn floats(self, start: usize) -> Option<*const f32> {
        let kept = matches!(self.kind, Kind::F32) && !self.one;
        kept.then(|| self.ptr.cast::<f32>().wrapping_add(start))
    }

    /// The address of the numbers from `start` on, if they are f16 and each block has its own.
    #[inline(always)]
    pub(super) fn halves(self, start: usize) -> Option<*const u16> {
        let kept = matches!(self.kind, Kind::F16) && !self.one;
        kept.then(|| self.ptr.cast::<u16>().wrapping_add(start))
    }

    /// The address of the numbers of `count` blocks from `start` on, and how many bytes they are; none if there is a
    /// single number.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn bytes(self, start: usize, count: usize) -> (*const u8, usize) {
        let size = match self.kind {
            Kind::U8 => 1,
            Kind::F16 | Kind::Bf16 => 2,
            Kind::F32 => 4,
        };
        (
            self.ptr.wrapping_add(start * size),
            if self.one { 0 } else { count * size },
        )
    }

    /// The number of block `i`.
    ///
    /// # Safety
    /// The number must be readable.
    #[inline(always)]
    pub(super) unsafe fn get(self, i: usize) -> f32 {
        let (mut to, i) = (0.0, if self.one { 0 } else { i });
        // SAFETY: by the caller.
        unsafe { self.read(i, 1, &raw mut to) };
        to
    }

    /// Reads the numbers of `n` blocks from `start` on; each block must have its own.
    ///
    /// # Safety
    /// The numbers must be readable, and `to` must have room for them.
    #[inline(always)]
    pub(super) unsafe fn read(self, start: usize, n: usize, to: *mut f32) {
        // SAFETY: all indices are below `n`.
        unsafe {
            match self.kind {
                Kind::U8 => {
                    let from = self.ptr.add(start);
                    (0..n).for_each(|i| to.add(i).write(f32::from(from.add(i).read())));
                }
                Kind::F16 => {
                    let from = self.ptr.cast::<u16>().add(start);
                    (0..n).for_each(|i| to.add(i).write(of_f16(from.add(i).read())));
                }
                Kind::Bf16 => {
                    let from = self.ptr.cast::<u16>().add(start);
                    (0..n).for_each(|i| to.add(i).write(f32::from_bits(u32::from(from.add(i).read()) << 16)));
                }
                Kind::F32 => to.copy_from_nonoverlapping(self.ptr.cast::<f32>().add(start), n),
            }
        }
    }
}
