//! x86-64 with AVX-512F.

use std::arch::x86_64::*;

use super::{Kernel, Lanes, Simd};

/// Registers of sixteen f32. Only [`run`] and [`run_streaming`] make this token.
#[derive(Clone, Copy)]
pub(super) struct Avx512 {
    past: bool,
}

/// Registers of eight f64.
#[derive(Clone, Copy)]
pub(super) struct Avx512Double(());

/// # Safety
/// The CPU must have AVX-512F.
#[target_feature(enable = "avx512f,avx2,fma")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx512 { past: false })
}

/// Like [`run`]; if `past` is set, the kernel's streamed results bypass the caches.
///
/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx512f,avx2,fma")]
pub(super) unsafe fn run_streaming<K: Kernel>(kernel: K, past: bool) -> K::Out {
    let out = kernel.run(Avx512 { past });
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

// SAFETY of every intrinsic below: a token exists only where `run` was called, whose contract is that
// the CPU has AVX-512F.

impl Lanes for Avx512 {
    type T = f32;
    type V = __m512;
    const N: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut f32, v: __m512) {
        // SAFETY: see above; the address by the caller, and its alignment is checked.
        unsafe {
            if self.past && to.addr().is_multiple_of(64) {
                _mm512_stream_ps(to, v);
            } else {
                _mm512_storeu_ps(to, v);
            }
        }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, n: usize) -> __m512 {
        // SAFETY: see above; lanes that the mask excludes are not accessed.
        unsafe { _mm512_maskz_loadu_ps(((1u32 << n) - 1) as u16, from) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize, v: __m512) {
        // SAFETY: see above; lanes that the mask excludes are not accessed.
        unsafe { _mm512_mask_storeu_ps(to, ((1u32 << n) - 1) as u16, v) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_add_ps(v) }
    }

    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        // SAFETY: see above; the array has room for four.
        unsafe {
            // First half a register for each, then a quarter.
            let low = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
            let high = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
            let four = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0x88>(low, high),
                _mm512_shuffle_f32x4::<0xdd>(low, high),
            );
            let two = _mm512_add_ps(four, _mm512_permute_ps::<0x4e>(four));
            let one = _mm512_add_ps(two, _mm512_permute_ps::<0xb1>(two));
            let firsts = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), one);
            let mut sums = [0.0; 4];
            _mm_storeu_ps(sums.as_mut_ptr(), _mm512_castps512_ps128(firsts));
            sums
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_step: isize, to: *mut f32, to_step: usize) {
        // SAFETY: see above; the addresses by the caller.
        unsafe {
            let four = from_step * 4;
            let (a, b) = (four_rows(from, from_step), four_rows(from.offset(four), from_step));
            let (c, d) = (
                four_rows(from.offset(2 * four), from_step),
                four_rows(from.offset(3 * four), from_step),
            );
            for j in 0..4 {
                let even = (
                    _mm512_shuffle_f32x4::<0x88>(a[j], b[j]),
                    _mm512_shuffle_f32x4::<0x88>(c[j], d[j]),
                );
                let odd = (
                    _mm512_shuffle_f32x4::<0xdd>(a[j], b[j]),
                    _mm512_shuffle_f32x4::<0xdd>(c[j], d[j]),
                );
                _mm512_storeu_ps(to.add(j * to_step), _mm512_shuffle_f32x4::<0x88>(even.0, even.1));
                _mm512_storeu_ps(to.add((j + 4) * to_step), _mm512_shuffle_f32x4::<0x88>(odd.0, odd.1));
                _mm512_storeu_ps(to.add((j + 8) * to_step), _mm512_shuffle_f32x4::<0xdd>(even.0, even.1));
                _mm512_storeu_ps(to.add((j + 12) * to_step), _mm512_shuffle_f32x4::<0xdd>(odd.0, odd.1));
            }
        }
    }
}

/// Loads four rows of 16, `step` elements apart. The quarters of register j hold the columns j, j + 4, j + 8 and
/// j + 12. This is a function instead of a closure, since debug builds do not inline a closure with so many uses: it
/// would be compiled without the caller's instruction set, and each intrinsic would become a call.
///
/// # Safety
/// The CPU must have the instructions, and the rows be readable.
#[inline(always)]
unsafe fn four_rows(from: *const f32, step: isize) -> [__m512; 4] {
    // SAFETY: by the caller.
    unsafe {
        let (a, b) = (_mm512_loadu_ps(from), _mm512_loadu_ps(from.offset(step)));
        let (c, d) = (
            _mm512_loadu_ps(from.offset(2 * step)),
            _mm512_loadu_ps(from.offset(3 * step)),
        );
        let low = (
            _mm512_castps_pd(_mm512_unpacklo_ps(a, b)),
            _mm512_castps_pd(_mm512_unpacklo_ps(c, d)),
        );
        let high = (
            _mm512_castps_pd(_mm512_unpackhi_ps(a, b)),
            _mm512_castps_pd(_mm512_unpackhi_ps(c, d)),
        );
        [
            _mm512_castpd_ps(_mm512_unpacklo_pd(low.0, low.1)),
            _mm512_castpd_ps(_mm512_unpackhi_pd(low.0, low.1)),
            _mm512_castpd_ps(_mm512_unpacklo_pd(high.0, high.1)),
            _mm512_castpd_ps(_mm512_unpackhi_pd(high.0, high.1)),
        ]
    }
}

impl Simd for Avx512 {
    type I = __m512i;
    type M = __mmask16;
    type Double = Avx512Double;

    #[inline(always)]
    fn past(self) -> bool {
        self.past
    }

    #[inline(always)]
    fn double(self) -> Avx512Double {
        Avx512Double(())
    }

    #[inline(always)]
    fn sqrt(self, v: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sqrt_ps(v) }
    }

    #[inline(always)]
    fn round(self, v: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
    }

    #[inline(always)]
    fn to_int(self, v: __m512) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_cvtps_epi32(v) }
    }

    #[inline(always)]
    fn from_int(self, i: __m512i) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(i) }
    }

    #[inline(always)]
    fn bits(self, v: __m512) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_castps_si512(v) }
    }

    #[inline(always)]
    fn from_bits(self, i: __m512i) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(i) }
    }

    #[inline(always)]
    fn splat_int(self, i: i32) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_set1_epi32(i) }
    }

    #[inline(always)]
    fn add_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn sub_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn and_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn xor_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn shl<const BY: i32>(self, i: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_sllv_epi32(i, _mm512_set1_epi32(BY)) }
    }

    #[inline(always)]
    fn shr<const BY: i32>(self, i: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_srav_epi32(i, _mm512_set1_epi32(BY)) }
    }

    const PICKS: bool = true;

    #[inline(always)]
    fn pick(self, from: &[f32; 32], at: __m512i) -> __m512 {
        // SAFETY: see above; the table has two registers.
        unsafe {
            let (low, high) = (_mm512_loadu_ps(from.as_ptr()), _mm512_loadu_ps(from.as_ptr().add(16)));
            _mm512_permutex2var_ps(low, at, high)
        }
    }

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        // SAFETY: see above; a prefetch has no visible effect, and does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) };
    }

    #[inline(always)]
    unsafe fn spread(self, from: *const f32, shift: u32) -> __m512 {
        // SAFETY: see above; the address by the caller.
        unsafe {
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let places = _mm512_srl_epi32(lanes, _mm_cvtsi32_si128(shift.cast_signed()));
            _mm512_permutexvar_ps(places, _mm512_loadu_ps(from))
        }
    }

    #[inline(always)]
    fn evens(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            _mm512_permutex2var_ps(a, places, b)
        }
    }

    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }

    #[inline(always)]
    fn eq(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
    }

    #[inline(always)]
    fn eq_int(self, a: __m512i, b: __m512i) -> __mmask16 {
        // SAFETY: see above.
        unsafe { _mm512_cmpeq_epi32_mask(a, b) }
    }

    #[inline(always)]
    fn select(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mask_blend_ps(mask, b, a) }
    }

    #[inline(always)]
    fn any(self, mask: __mmask16) -> bool {
        mask != 0
    }

    #[inline(always)]
    fn max_lane(self, v: __m512) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_max_ps(v) }
    }
}

impl Lanes for Avx512Double {
    type T = f64;
    type V = __m512d;
    const N: usize = 8;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, x: f64) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_set1_pd(x) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f64) -> __m512d {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm512_loadu_pd(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64, v: __m512d) {
        // SAFETY: see above; the address by the caller.
        unsafe { _mm512_storeu_pd(to, v) }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f64, n: usize) -> __m512d {
        // SAFETY: see above; lanes that the mask excludes are not accessed.
        unsafe { _mm512_maskz_loadu_pd(((1u32 << n) - 1) as u8, from) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f64, n: usize, v: __m512d) {
        // SAFETY: as for loads.
        unsafe { _mm512_mask_storeu_pd(to, ((1u32 << n) - 1) as u8, v) }
    }

    #[inline(always)]
    fn add(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_add_pd(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_sub_pd(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_mul_pd(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_div_pd(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_pd(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_max_pd(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: see above.
        unsafe { _mm512_min_pd(a, b) }
    }

    #[inline(always)]
    fn sum(self, v: __m512d) -> f64 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_add_pd(v) }
    }
}
