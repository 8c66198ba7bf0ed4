//! x86-64 with AVX2, FMA and F16C, which every processor with AVX2 has.

use std::arch::x86_64::*;

use polygrad_core::f16;

use super::{Kernel, Lanes, Simd};

/// Registers of eight f32. Only [`run`] and [`run_streaming`] make this token.
#[derive(Clone, Copy)]
pub(super) struct Avx2 {
    past: bool,
}

/// Registers of four f64.
#[derive(Clone, Copy)]
pub(super) struct Avx2Double(());

/// # Safety
/// The CPU must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx2 { past: false })
}

/// Like [`run`]; if `past` is set, the kernel's streamed results bypass the caches.
///
/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run_streaming<K: Kernel>(kernel: K, past: bool) -> K::Out {
    let out = kernel.run(Avx2 { past });
    if past {
        // These stores are not ordered with others: the fence makes them visible before the kernel's end is.
        #[allow(unused_unsafe, reason = "the fence is an unsafe function in Rust 1.92")]
        // SAFETY: every CPU with the instructions of this function has SSE.
        unsafe {
            _mm_sfence();
        }
    }
    out
}

/// The eight entries from `8 - n` on select the first `n` lanes.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// # Safety
/// The CPU must have AVX2; `n <= 8`.
#[inline(always)]
unsafe fn mask(n: usize) -> __m256i {
    // SAFETY: eight entries from `8 - n` on are inside the table.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n).cast()) }
}

// SAFETY of every intrinsic below: a token exists only where `run` was called, whose contract is that the CPU has AVX2,
// FMA and F16C.

impl Lanes for Avx2 {
    type T = f32;
    type V = __m256;
    const N: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m256) {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut f32, v: __m256) {
        // SAFETY: see above; the address by the caller, and its alignment is checked.
        unsafe {
            if self.past && to.addr().is_multiple_of(32) {
                _mm256_stream_ps(to, v);
            } else {
                _mm256_storeu_ps(to, v);
            }
        }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, n: usize) -> __m256 {
        // SAFETY: see above; lanes that the mask excludes are not accessed.
        unsafe { _mm256_maskload_ps(from, mask(n)) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize, v: __m256) {
        // SAFETY: see above; lanes that the mask excludes are not accessed.
        unsafe {
            // Some processors take tens of cycles for a masked store, even of all lanes.
            match n {
                8 => _mm256_storeu_ps(to, v),
                _ => _mm256_maskstore_ps(to, mask(n), v),
            }
        }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        // SAFETY: see above.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
        // SAFETY: see above; the array has room for four.
        unsafe {
            // First half a register for each, then a quarter.
            let low = _mm256_add_ps(
                _mm256_permute2f128_ps::<0x20>(a, b),
                _mm256_permute2f128_ps::<0x31>(a, b),
            );
            let high = _mm256_add_ps(
                _mm256_permute2f128_ps::<0x20>(c, d),
                _mm256_permute2f128_ps::<0x31>(c, d),
            );
            let two = _mm256_add_ps(
                _mm256_shuffle_ps::<0x44>(low, high),
                _mm256_shuffle_ps::<0xee>(low, high),
            );
            // The sums of a and c are in the lower half, those of b and d in the upper one.
            let one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
            let (ac, bd) = (_mm256_castps256_ps128(one), _mm256_extractf128_ps::<1>(one));
            let mut sums = [0.0; 4];
            let (low, high) = (_mm_unpacklo_ps(ac, bd), _mm_unpackhi_ps(ac, bd));
            _mm_storeu_ps(sums.as_mut_ptr(), _mm_movelh_ps(low, high));
            sums
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_step: isize, to: *mut f32, to_step: usize) {
        // SAFETY: see above; the addresses by the caller.
        unsafe {
            // Without closures, which would not be compiled with this function's instructions.
            let mut halves = [[_mm256_setzero_ps(); 4]; 2];
            for (half, first) in halves.iter_mut().zip([0, 4]) {
                let mut rows = [_mm256_setzero_ps(); 4];
                for (i, row) in (first..).zip(&mut rows) {
                    *row = _mm256_loadu_ps(from.offset(i * from_step));
                }
                // Interleaves pairs of rows, then fours, then halves.
                let [a, b, c, d] = rows;
                let (a, b) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (c, d) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                *half = [
                    _mm256_shuffle_ps::<0x44>(a, c),
                    _mm256_shuffle_ps::<0xee>(a, c),
                    _mm256_shuffle_ps::<0x44>(b, d),
                    _mm256_shuffle_ps::<0xee>(b, d),
                ];
            }
            let [upper, lower] = halves;
            for i in 0..4 {
                let low = _mm256_permute2f128_ps::<0x20>(upper[i], lower[i]);
                let high = _mm256_permute2f128_ps::<0x31>(upper[i], lower[i]);
                _mm256_storeu_ps(to.add(i * to_step), low);
                _mm256_storeu_ps(to.add((i + 4) * to_step), high);
            }
        }
    }
}

impl Simd for Avx2 {
    type I = __m256i;
    type M = __m256;
    type Double = Avx2Double;

    #[inline(always)]
    fn past(self) -> bool {
        self.past
    }

    #[inline(always)]
    fn double(self) -> Avx2Double {
        Avx2Double(())
    }

    #[inline(always)]
    fn sqrt(self, v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_sqrt_ps(v) }
    }

    #[inline(always)]
    fn round(self, v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
    }

    #[inline(always)]
    fn to_int(self, v: __m256) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_cvtps_epi32(v) }
    }

    #[inline(always)]
    fn from_int(self, i: __m256i) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(i) }
    }

    #[inline(always)]
    fn bits(self, v: __m256) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_castps_si256(v) }
    }

    #[inline(always)]
    fn from_bits(self, i: __m256i) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_castsi256_ps(i) }
    }

    #[inline(always)]
    fn splat_int(self, i: i32) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_set1_epi32(i) }
    }

    #[inline(always)]
    fn add_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn sub_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn and_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn xor_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn shl<const BY: i32>(self, i: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_slli_epi32::<BY>(i) }
    }

    #[inline(always)]
    fn shr<const BY: i32>(self, i: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_srai_epi32::<BY>(i) }
    }

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        // SAFETY: see above; a prefetch has no visible effect, and does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) };
    }

    #[inline(always)]
    unsafe fn spread(self, from: *const f32, shift: u32) -> __m256 {
        // SAFETY: see above; the address by the caller.
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let places = _mm256_srl_epi32(lanes, _mm_cvtsi32_si128(shift.cast_signed()));
            _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), places)
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> __m256 {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16, v: __m256) {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    fn evens(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe {
            // Alternating pairs of a and of b, then in order.
            let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(a, b));
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(pairs))
        }
    }

    #[inline(always)]
    fn lt(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
    }

    #[inline(always)]
    fn eq(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b) }
    }

    #[inline(always)]
    fn eq_int(self, a: __m256i, b: __m256i) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)) }
    }

    #[inline(always)]
    fn select(self, mask: __m256, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_blendv_ps(b, a, mask) }
    }

    #[inline(always)]
    fn any(self, mask: __m256) -> bool {
        // SAFETY: see above.
        unsafe { _mm256_movemask_ps(mask) != 0 }
    }

    #[inline(always)]
    fn max_lane(self, v: __m256) -> f32 {
        // SAFETY: see above.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
}

impl Lanes for Avx2Double {
    type T = f64;
    type V = __m256d;
    const N: usize = 4;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn splat(self, x: f64) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_set1_pd(x) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f64) -> __m256d {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm256_loadu_pd(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64, v: __m256d) {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm256_storeu_pd(to, v) }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f64, n: usize) -> __m256d {
        // SAFETY: see above; lanes that the mask excludes are not accessed. A lane of f64 is two entries of the table.
        unsafe { _mm256_maskload_pd(from, mask(2 * n)) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f64, n: usize, v: __m256d) {
        // SAFETY: as for loads.
        unsafe {
            match n {
                4 => _mm256_storeu_pd(to, v),
                _ => _mm256_maskstore_pd(to, mask(2 * n), v),
            }
        }
    }

    #[inline(always)]
    fn add(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_add_pd(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_sub_pd(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_mul_pd(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_div_pd(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_pd(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_max_pd(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: see above.
        unsafe { _mm256_min_pd(a, b) }
    }

    #[inline(always)]
    fn sum(self, v: __m256d) -> f64 {
        // SAFETY: see above.
        unsafe {
            let two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd::<1>(v));
            _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
        }
    }
}
