//! A thin layer over vector registers: kernels are written once, generic over [`Lanes`] or [`Simd`], and compiled for
//! each instruction set by [`Level::run`].
//!
//! The tokens (`Avx2`, `Avx512`, …) can only be made if the CPU has the instructions, so their methods are safe to
//! call. Everything is `#[inline(always)]`, so that it ends up inside the one function that enables the target
//! features. For the same reason the compiler vectorizes plain Rust loops in a [`Kernel`].
#![allow(
    clippy::wrong_self_convention,
    reason = "the self of every op is the instruction set"
)]

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod policy;

use half::slice::HalfFloatSliceExt;
use polygrad_core::f16;

pub use policy::StorePolicy;

/// The instruction set that vector kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// No particular instructions: only those that every machine of this architecture has.
    Portable,
    /// x86-64 with AVX2, FMA and F16C: eight f32 at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// x86-64 with AVX-512F: sixteen f32 at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AArch64: four f32 at a time.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Level {
    /// The best level that this machine has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            if avx2 && is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if avx2 {
                return Self::Avx2;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Self::Neon;
        }
        Self::Portable
    }

    /// Every level that this machine has, the simplest first.
    pub fn available() -> Vec<Self> {
        let best = Self::detect();
        let mut levels = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        if best == Self::Avx512 {
            levels.push(Self::Avx2);
        }
        if best != Self::Portable {
            levels.push(best);
        }
        levels
    }

    /// Elements of a register of f32.
    pub fn lanes(self) -> usize {
        self.run(Count)
    }

    /// A short name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }

    /// Runs a kernel of plain loops, which the compiler vectorizes; without a level, for the architecture's baseline.
    /// Registers wider than those of AVX2 give such loops no speed, only more code.
    #[inline(always)]
    pub fn run_loops<K: Kernel>(level: Option<Self>, kernel: K) -> K::Out {
        match level {
            None | Some(Self::Portable) => portable::run(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the level says that the CPU has the instructions; those with AVX-512 have AVX2.
            Some(Self::Avx2 | Self::Avx512) => unsafe { avx2::run(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the level says that the CPU has the instructions.
            Some(Self::Neon) => unsafe { neon::run(kernel) },
        }
    }

    /// Runs a kernel of plain loops for the architecture's baseline, where wider registers are not worth more code.
    #[inline(always)]
    pub fn run_baseline<K: Kernel>(kernel: K) -> K::Out {
        portable::run(kernel)
    }

    /// Runs a kernel compiled for this level, which the machine must have: the level comes from [`Level::detect`] or
    /// [`Level::available`].
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            Self::Portable => portable::run(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the level says that the CPU has the instructions.
            Self::Avx2 => unsafe { avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx512 => unsafe { avx512::run(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Self::Neon => unsafe { neon::run(kernel) },
        }
    }
}

/// A task that is compiled once for each [`Level`].
pub trait Kernel {
    type Out;

    /// Must be `#[inline(always)]`, like everything in it that is to be compiled for the level.
    fn run<S: Simd>(self, simd: S) -> Self::Out;
}

/// See [`Level::lanes`].
struct Count;

impl Kernel for Count {
    type Out = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::N
    }
}

/// Registers of one element type.
pub trait Lanes: Copy + Send + Sync + 'static {
    /// The element: f32 or f64.
    type T: Copy;
    /// A register.
    type V: Copy;
    /// Elements in a register, at most 16.
    const N: usize;
    /// Number of registers that a kernel can use.
    const REGISTERS: usize;

    fn splat(self, x: Self::T) -> Self::V;

    /// # Safety
    /// `N` elements must be readable at `from`.
    unsafe fn load(self, from: *const Self::T) -> Self::V;

    /// # Safety
    /// `N` elements must be writable at `to`.
    unsafe fn store(self, to: *mut Self::T, v: Self::V);

    /// Stores a result that the kernel does not read again: past the caches if the [policy](StorePolicy) says so.
    ///
    /// # Safety
    /// `N` elements must be writable at `to`.
    #[inline(always)]
    unsafe fn stream(self, to: *mut Self::T, v: Self::V) {
        // SAFETY: passed on.
        unsafe { self.store(to, v) };
    }

    /// The first `n` lanes from memory, the others zero.
    ///
    /// # Safety
    /// `n <= N` elements must be readable at `from`.
    unsafe fn load_part(self, from: *const Self::T, n: usize) -> Self::V;

    /// # Safety
    /// `n <= N` elements must be writable at `to`.
    unsafe fn store_part(self, to: *mut Self::T, n: usize, v: Self::V);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a b + c`, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// The larger of each pair. If one is NaN, the result is NaN or `b`, so a NaN in `b` always stays.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;

    /// The smaller of each pair. If one is NaN, the result is NaN or `b`, so a NaN in `b` always stays.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;

    /// The sum of all lanes, computed by adding halves.
    fn sum(self, v: Self::V) -> Self::T;

    /// [`Lanes::sum`] of each register.
    #[inline(always)]
    fn sums(self, v: [Self::V; 4]) -> [Self::T; 4] {
        let [a, b, c, d] = v;
        [self.sum(a), self.sum(b), self.sum(c), self.sum(d)]
    }

    /// Transposes a square of `N` rows and columns. Rows are `from_step` elements apart in the source,
    /// `to_step` in the target.
    ///
    /// # Safety
    /// The squares must be readable and writable, and must not overlap.
    #[inline(always)]
    unsafe fn transpose(self, from: *const Self::T, from_step: isize, to: *mut Self::T, to_step: usize) {
        for i in 0..Self::N {
            for j in 0..Self::N {
                // SAFETY: by the caller.
                unsafe {
                    to.add(j * to_step + i)
                        .write(from.offset(i.cast_signed() * from_step).add(j).read())
                };
            }
        }
    }
}

/// Registers of f32, with the operations of vector maths.
pub trait Simd: Lanes<T = f32> {
    /// A register with the same number of i32.
    type I: Copy;
    /// A boolean for each lane.
    type M: Copy;
    /// The same instruction set's registers of f64.
    type Double: Lanes<T = f64>;

    fn double(self) -> Self::Double;

    /// Whether [`Lanes::stream`] may bypass the caches.
    #[inline(always)]
    fn past(self) -> bool {
        false
    }

    fn sqrt(self, v: Self::V) -> Self::V;

    /// Rounds to the nearest integer, ties to even.
    fn round(self, v: Self::V) -> Self::V;

    /// Converts to the nearest integer; the value must fit.
    fn to_int(self, v: Self::V) -> Self::I;
    fn from_int(self, i: Self::I) -> Self::V;
    fn bits(self, v: Self::V) -> Self::I;
    fn from_bits(self, i: Self::I) -> Self::V;
    fn splat_int(self, i: i32) -> Self::I;
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn and_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn xor_int(self, a: Self::I, b: Self::I) -> Self::I;

    /// Shifted to the left by `BY` bits.
    fn shl<const BY: i32>(self, i: Self::I) -> Self::I;

    /// Shifted to the right by `BY` bits, keeping the sign.
    fn shr<const BY: i32>(self, i: Self::I) -> Self::I;

    /// Whether [`Simd::pick`] is a single instruction.
    const PICKS: bool = false;

    /// For each lane, the number in `from` at the index in the lowest five bits of `at`.
    #[inline(always)]
    fn pick(self, from: &[f32; 32], at: Self::I) -> Self::V {
        let mut lanes = [0f32; 16];
        // SAFETY: no register is longer than 16 elements.
        unsafe {
            self.store(lanes.as_mut_ptr(), self.from_bits(at));
            for lane in &mut lanes[..Self::N] {
                *lane = from[lane.to_bits() as usize & 31];
            }
            self.load(lanes.as_ptr())
        }
    }

    /// Prefetches the cache line with this byte, which need not be readable, to the second level, where it does not
    /// evict the current working set.
    #[inline(always)]
    fn prefetch(self, _: *const u8) {}

    /// Lane `i` is the number at `from[i >> shift]`.
    ///
    /// # Safety
    /// [`Lanes::N`] elements must be readable at `from`.
    #[inline(always)]
    unsafe fn spread(self, from: *const f32, shift: u32) -> Self::V {
        let mut lanes = [0f32; 16];
        // SAFETY: no index is larger than the lane's own, and no register is longer than 16 elements.
        unsafe {
            for (i, lane) in lanes[..Self::N].iter_mut().enumerate() {
                *lane = from.add(i >> shift).read();
            }
            self.load(lanes.as_ptr())
        }
    }

    /// As many f16 as a register has lanes, widened: for loops, which run on AVX2's registers ([`Level::run_loops`]).
    ///
    /// # Safety
    /// [`Lanes::N`] f16 must be readable at `from`.
    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> Self::V {
        let mut lanes = [0f32; 16];
        // SAFETY: by the caller; no register is longer than 16 elements.
        unsafe {
            std::slice::from_raw_parts(from, Self::N).convert_to_f32_slice(&mut lanes[..Self::N]);
            self.load(lanes.as_ptr())
        }
    }

    /// Stores each lane rounded to the nearest f16, ties to even.
    ///
    /// # Safety
    /// [`Lanes::N`] f16 must be writable at `to`.
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16, v: Self::V) {
        let (mut lanes, mut rounded) = ([0f32; 16], [f16::ZERO; 16]);
        // SAFETY: by the caller; no register is longer than 16 elements.
        unsafe {
            self.store(lanes.as_mut_ptr(), v);
            rounded[..Self::N].convert_from_f32_slice(&lanes[..Self::N]);
            to.copy_from_nonoverlapping(rounded.as_ptr(), Self::N);
        }
    }

    /// The even lanes of `a`, then those of `b`; if there is only one lane, it is even.
    fn evens(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a < b`, false for NaN.
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;

    /// `a == b`, false for NaN.
    fn eq(self, a: Self::V, b: Self::V) -> Self::M;
    fn eq_int(self, a: Self::I, b: Self::I) -> Self::M;

    /// `a` if the mask is set, else `b`.
    fn select(self, mask: Self::M, a: Self::V, b: Self::V) -> Self::V;
    fn any(self, mask: Self::M) -> bool;

    /// The largest lane. A NaN may be lost.
    fn max_lane(self, v: Self::V) -> f32;

    #[inline(always)]
    fn abs(self, v: Self::V) -> Self::V {
        self.from_bits(self.and_int(self.bits(v), self.splat_int(0x7fff_ffff)))
    }

    #[inline(always)]
    fn neg(self, v: Self::V) -> Self::V {
        self.from_bits(self.xor_int(self.bits(v), self.splat_int(i32::MIN)))
    }

    /// Only the sign bit.
    #[inline(always)]
    fn sign_bit(self, v: Self::V) -> Self::I {
        self.and_int(self.bits(v), self.splat_int(i32::MIN))
    }

    /// Flips the sign of `v` if `sign` has its sign bit set; the other bits of `sign` must be 0.
    #[inline(always)]
    fn xor_sign(self, v: Self::V, sign: Self::I) -> Self::V {
        self.from_bits(self.xor_int(self.bits(v), sign))
    }

    /// Evaluates a polynomial by Horner's rule, with the coefficient of the highest power first.
    #[inline(always)]
    fn poly<const TERMS: usize>(self, x: Self::V, coefficients: [f32; TERMS]) -> Self::V {
        let mut sum = self.splat(coefficients[0]);
        for &c in &coefficients[1..] {
            sum = self.mul_add(sum, x, self.splat(c));
        }
        sum
    }
}

/// Converts the bits of an f16, without a branch, so that loops can be vectorized.
#[inline(always)]
pub(crate) fn of_f16(bits: u16) -> f32 {
    // The exponent's bias is 112 less than that of f32; the multiplication also handles denormal numbers.
    const BIAS: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * BIAS).to_bits();
    let is_special = bits & 0x7c00 == 0x7c00;
    let magnitude = if is_special { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests;
