//! Instructions that multiply bytes: for each lane of 32 bits they sum up four products of bytes, or two products of
//! 16-bit numbers. None of them saturates.

use crate::simd::of_f16;
use crate::{CpuDevice, Level};

/// Registers of i32, and 32-bit words that are multiplied into them. A word holds [`Dot::GROUP`] numbers that are
/// adjacent along `k`: unsigned in one operand, signed in the other.
pub(in crate::gemm) trait Dot: Copy {
    /// A register of i32, or of words.
    type V: Copy;
    /// A register with the same number of f32.
    type F: Copy;
    /// Words in a register.
    const LANES: usize;
    /// Rows of a tile: as many as the registers allow, with [`NV`] for each row, and some for the operands.
    const ROWS: usize;
    /// Numbers in a word.
    const GROUP: usize;

    fn splat(self, word: u32) -> Self::V;

    /// # Safety
    /// [`Dot::LANES`] words must be readable at `from`.
    unsafe fn load(self, from: *const u32) -> Self::V;

    /// # Safety
    /// `n` words must be writable at `to`; `n` is at most [`Dot::LANES`].
    unsafe fn store_part(self, to: *mut i32, n: usize, v: Self::V);

    /// `sum` plus the products of unsigned and signed numbers of each lane; wraps.
    fn dot(self, sum: Self::V, unsigned: Self::V, signed: Self::V) -> Self::V;

    /// `a b + c` in each lane; wraps.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// Words shifted right by `BY` bits, and masked.
    fn part<const BY: u32>(self, words: Self::V, mask: u32) -> Self::V;

    fn splat_float(self, x: f32) -> Self::F;

    /// # Safety
    /// [`Dot::LANES`] numbers must be readable at `from`.
    unsafe fn load_floats(self, from: *const f32) -> Self::F;

    /// Numbers of f16 as f32.
    ///
    /// # Safety
    /// [`Dot::LANES`] numbers must be readable at `from`.
    unsafe fn load_halves(self, from: *const u16) -> Self::F;

    /// # Safety
    /// `n` numbers must be writable at `to`; `n` is at most [`Dot::LANES`].
    unsafe fn store_floats(self, to: *mut f32, n: usize, v: Self::F);

    /// The nearest f32.
    fn float(self, v: Self::V) -> Self::F;

    fn times(self, a: Self::F, b: Self::F) -> Self::F;

    /// `a b + c`, rounded once.
    fn add_times(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// Stores the bytes nearest to `x` plus a zero point, which is a byte, too; 0 for NaN.
    ///
    /// # Safety
    /// [`Dot::LANES`] bytes must be writable at `to`.
    unsafe fn store_bytes(self, to: *mut u8, x: Self::F, zero: Self::F);
}

/// Registers in a row of a tile.
pub(super) const NV: usize = 2;

/// The instructions that a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Loops, as the compiler vectorizes them.
    Portable,
    /// Products of pairs of 16-bit numbers.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Products of four bytes, in registers of 256 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// Products of four bytes, in registers of 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

/// A task that is compiled once for each [`Way`]. `run` must be `#[inline(always)]`.
pub(in crate::gemm) trait Work {
    type Out;

    fn run<D: Dot>(self, d: D) -> Self::Out;
}

impl Way {
    pub fn of(device: CpuDevice) -> Self {
        match device.vectors() {
            #[cfg(target_arch = "x86_64")]
            Some(Level::Avx512) if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bw") => {
                Self::Avx512Vnni
            }
            #[cfg(target_arch = "x86_64")]
            Some(Level::Avx2 | Level::Avx512) if is_x86_feature_detected!("avxvnni") => Self::AvxVnni,
            #[cfg(target_arch = "x86_64")]
            Some(Level::Avx2 | Level::Avx512) => Self::Avx2,
            _ => Self::Portable,
        }
    }

    /// All ways that this machine supports.
    #[cfg(test)]
    pub(in crate::gemm) fn available(device: CpuDevice) -> Vec<Self> {
        let best = Self::of(device);
        let mut ways = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        if best != Self::Portable {
            ways.push(Self::Avx2);
            if is_x86_feature_detected!("avxvnni") {
                ways.push(Self::AvxVnni);
            }
        }
        if !ways.contains(&best) {
            ways.push(best);
        }
        ways
    }

    #[inline(always)]
    pub(in crate::gemm) fn run<W: Work>(self, work: W) -> W::Out {
        match self {
            Self::Portable => work.run(Portable),
            // SAFETY: the way says that the CPU has the instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::run_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => unsafe { x86::run_avx_vnni(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => unsafe { x86::run_avx512_vnni(work) },
        }
    }

    /// Words in a register.
    pub(in crate::gemm) fn lanes(self) -> usize {
        match self {
            Self::Portable => Portable::LANES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni => 8,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => 16,
        }
    }

    /// A level whose registers hold the same number of f32, if there is one.
    pub(in crate::gemm) fn level(self) -> Level {
        match self {
            Self::Portable => Level::Portable,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni => Level::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => Level::Avx512,
        }
    }

    /// Words in a row of a tile.
    pub fn columns(self) -> usize {
        NV * self.lanes()
    }

    /// Rows of a tile.
    pub(super) fn rows(self) -> usize {
        match self {
            Self::Portable => Portable::ROWS,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni => 6,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => 12,
        }
    }

    /// Numbers in a word.
    pub(in crate::gemm) fn group(self) -> usize {
        match self {
            Self::Portable => Portable::GROUP,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 2,
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni | Self::Avx512Vnni => 4,
        }
    }

    /// Approximate nanoseconds of a multiplication and addition.
    pub fn cost(self) -> f32 {
        match self {
            Self::Portable => 0.1,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 0.012,
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni | Self::Avx512Vnni => 0.004,
        }
    }
}

/// Loops over short arrays.
#[derive(Clone, Copy)]
struct Portable;

/// The two numbers of a word.
#[inline(always)]
fn pair(word: i32) -> [i32; 2] {
    [i32::from(word as i16), word >> 16]
}

impl Dot for Portable {
    type V = [i32; 4];
    type F = [f32; 4];
    const LANES: usize = 4;
    const ROWS: usize = 4;
    const GROUP: usize = 2;

    #[inline(always)]
    fn splat(self, word: u32) -> [i32; 4] {
        [word.cast_signed(); 4]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> [i32; 4] {
        // SAFETY: by the caller; an array of i32 needs no more than the alignment of one.
        unsafe { from.cast::<[i32; 4]>().read() }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut i32, n: usize, v: [i32; 4]) {
        for (i, x) in v.into_iter().enumerate().take(n) {
            // SAFETY: by the caller.
            unsafe { to.add(i).write(x) };
        }
    }

    #[inline(always)]
    fn dot(self, sum: [i32; 4], unsigned: [i32; 4], signed: [i32; 4]) -> [i32; 4] {
        std::array::from_fn(|i| {
            let ([a, b], [x, y]) = (pair(unsigned[i]), pair(signed[i]));
            sum[i].wrapping_add(a * x + b * y)
        })
    }

    #[inline(always)]
    fn mul_add(self, a: [i32; 4], b: [i32; 4], c: [i32; 4]) -> [i32; 4] {
        std::array::from_fn(|i| a[i].wrapping_mul(b[i]).wrapping_add(c[i]))
    }

    #[inline(always)]
    fn part<const BY: u32>(self, words: [i32; 4], mask: u32) -> [i32; 4] {
        words.map(|word| (word.cast_unsigned() >> BY & mask).cast_signed())
    }

    #[inline(always)]
    fn splat_float(self, x: f32) -> [f32; 4] {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn load_floats(self, from: *const f32) -> [f32; 4] {
        // SAFETY: by the caller.
        unsafe { from.cast::<[f32; 4]>().read() }
    }

    #[inline(always)]
    unsafe fn load_halves(self, from: *const u16) -> [f32; 4] {
        // SAFETY: by the caller.
        unsafe { from.cast::<[u16; 4]>().read() }.map(of_f16)
    }

    #[inline(always)]
    unsafe fn store_floats(self, to: *mut f32, n: usize, v: [f32; 4]) {
        for (i, x) in v.into_iter().enumerate().take(n) {
            // SAFETY: by the caller.
            unsafe { to.add(i).write(x) };
        }
    }

    #[inline(always)]
    fn float(self, v: [i32; 4]) -> [f32; 4] {
        v.map(|x| x as f32)
    }

    #[inline(always)]
    fn times(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] * b[i])
    }

    /// Computed in f64, which holds the product exactly, since the library's fused function is slow. The last bit may
    /// differ from it.
    #[inline(always)]
    fn add_times(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| (f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i])) as f32)
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, x: [f32; 4], zero: [f32; 4]) {
        // A cast of NaN gives 0.
        let bytes = std::array::from_fn::<u8, 4, _>(|i| (x[i].round_ties_even() + zero[i]) as u8);
        // SAFETY: by the caller.
        unsafe { to.cast::<[u8; 4]>().write(bytes) };
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Dot, Work};

    // SAFETY of every intrinsic below: a token exists only inside the function that makes it, whose contract is that
    // the CPU has the instructions.

    #[derive(Clone, Copy)]
    struct Avx2;

    #[derive(Clone, Copy)]
    struct AvxVnni;

    #[derive(Clone, Copy)]
    struct Avx512Vnni;

    /// # Safety
    /// The CPU must have AVX2, FMA and F16C.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run_avx2<W: Work>(work: W) -> W::Out {
        work.run(Avx2)
    }

    /// # Safety
    /// The CPU must have AVX2, FMA, F16C and AVX-VNNI.
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    pub(super) unsafe fn run_avx_vnni<W: Work>(work: W) -> W::Out {
        work.run(AvxVnni)
    }

    /// # Safety
    /// The CPU must have AVX2, FMA, AVX-512F, BW and VNNI.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn run_avx512_vnni<W: Work>(work: W) -> W::Out {
        work.run(Avx512Vnni)
    }

    /// The methods of registers of 256 bits.
    macro_rules! of_256_bits {
        () => {
            type V = __m256i;
            type F = __m256;
            const LANES: usize = 8;
            const ROWS: usize = 6;

            #[inline(always)]
            fn splat(self, word: u32) -> __m256i {
                // SAFETY: see above.
                unsafe { _mm256_set1_epi32(word.cast_signed()) }
            }

            #[inline(always)]
            unsafe fn load(self, from: *const u32) -> __m256i {
                // SAFETY: see above; the address by the caller.
                unsafe { _mm256_loadu_si256(from.cast()) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut i32, n: usize, v: __m256i) {
                // SAFETY: see above; lanes from `n` on are not written.
                unsafe {
                    if n == 8 {
                        _mm256_storeu_si256(to.cast(), v);
                    } else {
                        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                        let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes);
                        _mm256_maskstore_epi32(to, mask, v);
                    }
                }
            }

            #[inline(always)]
            fn mul_add(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
                // SAFETY: see above.
                unsafe { _mm256_add_epi32(_mm256_mullo_epi32(a, b), c) }
            }

            #[inline(always)]
            fn part<const BY: u32>(self, words: __m256i, mask: u32) -> __m256i {
                // SAFETY: see above.
                unsafe {
                    let by = _mm_cvtsi32_si128(BY.cast_signed());
                    _mm256_and_si256(_mm256_srl_epi32(words, by), _mm256_set1_epi32(mask.cast_signed()))
                }
            }

            #[inline(always)]
            fn splat_float(self, x: f32) -> __m256 {
                // SAFETY: see above.
                unsafe { _mm256_set1_ps(x) }
            }

            #[inline(always)]
            unsafe fn load_floats(self, from: *const f32) -> __m256 {
                // SAFETY: see above; the address by the caller.
                unsafe { _mm256_loadu_ps(from) }
            }

            #[inline(always)]
            unsafe fn load_halves(self, from: *const u16) -> __m256 {
                // SAFETY: see above; the address by the caller.
                unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
            }

            #[inline(always)]
            unsafe fn store_floats(self, to: *mut f32, n: usize, v: __m256) {
                // SAFETY: as for words; the numbers are stored as words with the same bits.
                unsafe { self.store_part(to.cast(), n, _mm256_castps_si256(v)) };
            }

            #[inline(always)]
            fn float(self, v: __m256i) -> __m256 {
                // SAFETY: see above.
                unsafe { _mm256_cvtepi32_ps(v) }
            }

            #[inline(always)]
            fn times(self, a: __m256, b: __m256) -> __m256 {
                // SAFETY: see above.
                unsafe { _mm256_mul_ps(a, b) }
            }

            #[inline(always)]
            fn add_times(self, a: __m256, b: __m256, c: __m256) -> __m256 {
                // SAFETY: see above.
                unsafe { _mm256_fmadd_ps(a, b, c) }
            }

            #[inline(always)]
            unsafe fn store_bytes(self, to: *mut u8, x: __m256, zero: __m256) {
                // SAFETY: see above; the address by the caller.
                unsafe {
                    let x = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
                    // Of NaN and another number `max` gives the second.
                    let x = _mm256_max_ps(_mm256_add_ps(x, zero), _mm256_setzero_ps());
                    let x = _mm256_cvttps_epi32(_mm256_min_ps(x, _mm256_set1_ps(255.0)));
                    let halves = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
                    _mm_storel_epi64(to.cast(), _mm_packus_epi16(halves, halves));
                }
            }
        };
    }

    impl Dot for Avx2 {
        of_256_bits! {}
        const GROUP: usize = 2;

        #[inline(always)]
        fn dot(self, sum: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
            // SAFETY: see above.
            unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(unsigned, signed)) }
        }
    }

    impl Dot for AvxVnni {
        of_256_bits! {}
        const GROUP: usize = 4;

        #[inline(always)]
        fn dot(self, sum: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
            // SAFETY: see above.
            unsafe { _mm256_dpbusd_avx_epi32(sum, unsigned, signed) }
        }
    }

    impl Dot for Avx512Vnni {
        type V = __m512i;
        type F = __m512;
        const LANES: usize = 16;
        const ROWS: usize = 12;
        const GROUP: usize = 4;

        #[inline(always)]
        fn splat(self, word: u32) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_set1_epi32(word.cast_signed()) }
        }

        #[inline(always)]
        unsafe fn load(self, from: *const u32) -> __m512i {
            // SAFETY: see above; the address by the caller.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut i32, n: usize, v: __m512i) {
            let mask = ((1u32 << n) - 1) as u16;
            // SAFETY: see above; lanes from `n` on are not written.
            unsafe { _mm512_mask_storeu_epi32(to, mask, v) };
        }

        #[inline(always)]
        fn dot(self, sum: __m512i, unsigned: __m512i, signed: __m512i) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_dpbusd_epi32(sum, unsigned, signed) }
        }

        #[inline(always)]
        fn mul_add(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_add_epi32(_mm512_mullo_epi32(a, b), c) }
        }

        #[inline(always)]
        fn part<const BY: u32>(self, words: __m512i, mask: u32) -> __m512i {
            // SAFETY: see above.
            unsafe {
                let by = _mm_cvtsi32_si128(BY.cast_signed());
                _mm512_and_si512(_mm512_srl_epi32(words, by), _mm512_set1_epi32(mask.cast_signed()))
            }
        }

        #[inline(always)]
        fn splat_float(self, x: f32) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load_floats(self, from: *const f32) -> __m512 {
            // SAFETY: see above; the address by the caller.
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_halves(self, from: *const u16) -> __m512 {
            // SAFETY: see above; the address by the caller.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
        }

        #[inline(always)]
        unsafe fn store_floats(self, to: *mut f32, n: usize, v: __m512) {
            // SAFETY: as for words; the numbers are stored as words with the same bits.
            unsafe { self.store_part(to.cast(), n, _mm512_castps_si512(v)) };
        }

        #[inline(always)]
        fn float(self, v: __m512i) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_cvtepi32_ps(v) }
        }

        #[inline(always)]
        fn times(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_mul_ps(a, b) }
        }

        #[inline(always)]
        fn add_times(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        unsafe fn store_bytes(self, to: *mut u8, x: __m512, zero: __m512) {
            // SAFETY: see above; the address by the caller.
            unsafe {
                let x = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
                // Of NaN and another number `max` gives the second.
                let x = _mm512_max_ps(_mm512_add_ps(x, zero), _mm512_setzero_ps());
                let x = _mm512_cvttps_epi32(_mm512_min_ps(x, _mm512_set1_ps(255.0)));
                _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(x));
            }
        }
    }
}
