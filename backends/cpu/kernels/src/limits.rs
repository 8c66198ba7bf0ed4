//! The peak rates of the processor, measured by loops that do nothing else; kernels are compared with them.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use polygrad_core::Result;

use crate::CpuDevice;
use crate::buffers::{self, Buffer};
use crate::gemm::bytes;
use crate::simd::{Kernel, Level, Simd};

/// The fewest runs of a loop, and the fewest seconds of all runs; the fastest run counts.
const TURNS: usize = 3;
const SECONDS: f64 = 0.05;

/// Independent sums: this many instructions are in flight at a time, and no more than there are registers.
const SUMS: usize = 12;

/// Bytes per thread that stay in the second-level cache.
const NEAR: usize = 512 << 10;

/// Bytes that do not stay in the last-level cache: in all, and the fewest per thread.
const FAR: usize = 256 << 20;
const LEAST_FAR: usize = 32 << 20;

/// The peak rates of a device, per second.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Additions and multiplications of f32, by fused instructions that count as two.
    pub flops: f64,
    /// The same for bytes, by the instructions that products of bytes use.
    pub byte_ops: f64,
    /// Bytes read from the second-level cache.
    pub near: f64,
    /// Bytes read from memory.
    pub far: f64,
}

impl Limits {
    /// Measures a device with all its threads, in less than a second. Needs 256 MiB, or 32 MiB per thread if that is
    /// more.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn measure(device: CpuDevice) -> Result<Self> {
        let threads = device.threads();
        let level = device.vectors().unwrap_or(Level::Portable);
        let rounds = 200_000;
        let flops = best(device, |_| level.run(Fma { rounds }));
        let byte_ops = best(device, |_| bytes::multiplied(device, rounds));
        let far = (FAR / threads).max(LEAST_FAR);
        let buffer = Buffer::alloc(threads * far)?;
        // SAFETY: the buffer has room; this also maps its pages.
        unsafe { buffer.as_ptr().write_bytes(1, threads * far) };
        let read = |bytes: usize, again: usize| {
            best(device, |thread| {
                // SAFETY: the buffer is written, and has `far` bytes for each thread.
                let part = unsafe { std::slice::from_raw_parts(buffer.as_ptr().add(thread * far), bytes) };
                level.run(Read { part, again })
            })
        };
        let (near, far) = (read(NEAR, 64), read(far, 1));
        drop(buffer);
        // Otherwise the pool would keep the memory, and later measurements would find memory that is already mapped.
        buffers::flush();
        Ok(Self {
            flops,
            byte_ops,
            near,
            far,
        })
    }
}

/// The rate of all threads together, for work that returns its amount.
fn best(device: CpuDevice, work: impl Fn(usize) -> f64 + Sync) -> f64 {
    let threads = device.threads();
    let amounts: Vec<OnceLock<f64>> = (0..threads).map(|_| OnceLock::new()).collect();
    let turn = |_| {
        let start = Instant::now();
        device.each(threads, 1e9, |thread| {
            let amount = work(thread);
            let _ = amounts[thread].set(amount);
        });
        let seconds = start.elapsed().as_secs_f64();
        amounts.iter().filter_map(OnceLock::get).sum::<f64>() / seconds
    };
    let start = Instant::now();
    let turns = (0..).take_while(|&turn| turn < TURNS || start.elapsed().as_secs_f64() < SECONDS);
    turns.map(turn).fold(0.0, f64::max)
}

/// Fused multiplications and additions of f32.
struct Fma {
    rounds: usize,
}

impl Kernel for Fma {
    type Out = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let (x, y) = (s.splat(black_box(0.999)), s.splat(black_box(1e-3)));
        let mut sums = [s.splat(black_box(1.0)); SUMS];
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = s.mul_add(*sum, x, y);
            }
        }
        black_box(sums.map(|sum| s.sum(sum)));
        (2 * SUMS * S::N * self.rounds) as f64
    }
}

/// Sums of the numbers in memory.
struct Read<'a> {
    part: &'a [u8],
    again: usize,
}

impl Kernel for Read<'_> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let at_once = SUMS * S::N;
        let from = self.part.as_ptr().cast::<f32>();
        let count = self.part.len() / size_of::<f32>() / at_once;
        let mut sums = [s.splat(0.0); SUMS];
        for _ in 0..self.again {
            for i in 0..count {
                for (j, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the part has these numbers; all bits are some f32, and a buffer is aligned.
                    *sum = s.add(*sum, unsafe { s.load(from.add(i * at_once + j * S::N)) });
                }
            }
            black_box(&mut sums);
        }
        black_box(sums.map(|sum| s.sum(sum)));
        (count * at_once * size_of::<f32>() * self.again) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernels;

    #[test]
    fn limits_are_numbers_of_this_machine() {
        let limits = Limits::measure(CpuDevice::new(1, Kernels::default()).unwrap()).unwrap();
        let all = [limits.flops, limits.byte_ops, limits.near, limits.far];
        assert!(all.iter().all(|limit| limit.is_finite() && *limit > 1e7), "{limits:?}");
    }
}
