//! Rows of X, rounded to bytes.

use polygrad_core::Result;

use super::{Weight, Words};
use crate::CpuDevice;
use crate::Pointer;
use crate::gemm::bytes::Way;
use crate::simd::{Kernel, Level, Simd};

/// Adding this to a number whose magnitude is less than a quarter of it leaves the nearest integer, with halves rounded
/// to even, in the lowest bits.
const TO_INTEGER: f32 = 12_582_912.0;

/// The least magnitude of a block whose scale has a reciprocal; smaller blocks become 0.
const LEAST: f32 = 1e-30;

/// Rounded rows of X.
pub(super) struct Input {
    pub(super) rows: usize,
    /// For each row, the bytes in the order in which numbers are unpacked from the weight's words, as words for
    /// [`Way`].
    words: Words,
    /// Words per row.
    pub(super) step: usize,
    /// For each row, the scale of each block.
    scales: Words,
    /// For each row, the initial value of each block's sum of products: the single integer zero point, times its bytes.
    starts: Words,
    /// For each row, the negated sum of each block; only if the weight's blocks have their own zero points.
    sums: Option<Words>,
    blocks: usize,
}

impl Input {
    /// Rounds `m` rows.
    ///
    /// # Safety
    /// X must be readable.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) unsafe fn new(weight: &Weight, device: CpuDevice, way: Way, m: usize, x: *const f32) -> Result<Self> {
        let (k, blocks) = (weight.k, weight.blocks());
        let step = k / way.group();
        // SAFETY: by the caller of the product.
        let zero = unsafe { weight.whole_zero() };
        let input = Self {
            rows: m,
            words: Words::new(m * step)?,
            step,
            scales: Words::new(m * blocks)?,
            starts: Words::new(m * blocks)?,
            sums: zero.is_none().then(|| Words::new(m * blocks)).transpose()?,
            blocks,
        };
        let x = Pointer(x.cast_mut());
        device.each(m, k as f32 * 0.3, |row| {
            let round = Round {
                x: x.at(row * k),
                k,
                size: weight.scheme.size(),
                bits: weight.scheme.bits(),
                group: way.group(),
                zero: zero.unwrap_or(0),
                words: input.words.ptr::<u32>().wrapping_add(row * step),
                scales: input.scales.ptr::<f32>().wrapping_add(row * blocks),
                starts: input.starts.ptr::<i32>().wrapping_add(row * blocks),
                sums: input
                    .sums
                    .as_ref()
                    .map(|sums| sums.ptr::<f32>().wrapping_add(row * blocks)),
            };
            Level::run_loops(device.vectors(), round);
        });
        Ok(input)
    }

    /// A row's words.
    #[inline(always)]
    pub(super) fn words(&self, row: usize) -> *const u32 {
        self.words.ptr::<u32>().wrapping_add(row * self.step)
    }

    /// A row's scales.
    #[inline(always)]
    pub(super) fn scales(&self, row: usize) -> *const f32 {
        self.scales.ptr::<f32>().wrapping_add(row * self.blocks)
    }

    /// The initial values of a row's sums.
    #[inline(always)]
    pub(super) fn starts(&self, row: usize) -> *const u32 {
        self.starts.ptr::<u32>().wrapping_add(row * self.blocks)
    }

    /// A row's negated sums, if they are needed.
    #[inline(always)]
    pub(super) fn sums(&self, row: usize) -> Option<*const f32> {
        let sums = self.sums.as_ref()?;
        Some(sums.ptr::<f32>().wrapping_add(row * self.blocks))
    }
}

/// Rounds a row.
struct Round {
    x: *const f32,
    k: usize,
    size: usize,
    bits: usize,
    group: usize,
    zero: i32,
    words: *mut u32,
    scales: *mut f32,
    starts: *mut i32,
    sums: Option<*mut f32>,
}

/// The count of numbers rounded together, which is the smallest block size.
const STEP: usize = 16;

impl Kernel for Round {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { k, size, .. } = self;
        for (block, start) in (0..k).step_by(size).enumerate() {
            // SAFETY: the row has `k` numbers, which are whole blocks.
            let x = unsafe { std::slice::from_raw_parts(self.x.add(start), size) };
            let mut most = [0f32; STEP];
            let mut nothing = [0f32; STEP];
            for part in x.chunks_exact(STEP) {
                for i in 0..STEP {
                    let magnitude = part[i].abs();
                    most[i] = if magnitude > most[i] { magnitude } else { most[i] };
                    // An infinite or NaN number makes this NaN.
                    nothing[i] += part[i] * 0.0;
                }
            }
            let most = halved(most, |a, b| if b > a { b } else { a });
            let finite = halved(nothing, |a, b| a + b) == 0.0;
            let (scale, inverse) = match (finite, most >= LEAST) {
                (false, _) => (f32::NAN, 0.0),
                (_, false) => (0.0, 0.0),
                _ => (most / 127.0, 127.0 / most),
            };
            let mut sums = [0i32; STEP];
            for (at, part) in x.chunks_exact(STEP).enumerate() {
                let mut bytes = [0i8; STEP];
                for i in 0..STEP {
                    let scaled = if finite { part[i] * inverse } else { 0.0 };
                    bytes[i] = (scaled + TO_INTEGER).to_bits() as i8;
                    sums[i] += i32::from(bytes[i]);
                }
                // SAFETY: there is room for all numbers of the row.
                unsafe { self.write(start + at * STEP, bytes) };
            }
            let sum = halved(sums, |a, b| a + b);
            // SAFETY: there is room for each block.
            unsafe {
                self.scales.add(block).write(scale);
                self.starts.add(block).write(self.zero.wrapping_mul(sum).wrapping_neg());
                if let Some(to) = self.sums {
                    to.add(block).write(-(scale * sum as f32));
                }
            }
        }
    }
}

impl Round {
    /// Writes the bytes of the numbers from `at` on. A word of the weight has `per` numbers and is unpacked to one
    /// register after another: of `parts` registers, register `p` has every `parts`-th number, starting at `p`.
    #[inline(always)]
    unsafe fn write(&self, at: usize, bytes: [i8; STEP]) {
        let (bits, group) = (self.bits, self.group);
        // SAFETY: by the caller.
        unsafe {
            match (bits, group) {
                (8, 4) => self.words.cast::<[i8; STEP]>().add(at / STEP).write_unaligned(bytes),
                (4, 4) => {
                    for (i, eight) in bytes.as_chunks::<8>().0.iter().enumerate() {
                        let eight = u64::from_le_bytes(eight.map(i8::cast_unsigned));
                        let [even, odd] = [even_bytes(eight), even_bytes(eight >> 8)];
                        let to = self.words.add(at / 4 + 2 * i).cast::<u64>();
                        to.write_unaligned((u64::from(even) | u64::from(odd) << 32).to_le());
                    }
                }
                _ => {
                    let per = 32 / bits;
                    let parts = per / group;
                    for word in 0..STEP / group {
                        let (first, part) = (word / parts * per, word % parts);
                        let [low, high] = [0, 1].map(|i| u32::from(i16::from(bytes[first + i * parts + part]) as u16));
                        self.words.add(at / group + word).write(low | high << 16);
                    }
                }
            }
        }
    }
}

/// Combines all numbers: each of the first half with one of the second, until one is left. In order, each step would
/// wait for the one before.
#[inline(always)]
fn halved<T: Copy>(mut numbers: [T; STEP], combine: impl Fn(T, T) -> T) -> T {
    let mut half = STEP / 2;
    while half > 0 {
        for i in 0..half {
            numbers[i] = combine(numbers[i], numbers[i + half]);
        }
        half /= 2;
    }
    numbers[0]
}

/// Every second byte, the lowest first.
#[inline(always)]
fn even_bytes(x: u64) -> u32 {
    let x = x & 0x00ff_00ff_00ff_00ff;
    let x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
    (x | x >> 16) as u32
}
