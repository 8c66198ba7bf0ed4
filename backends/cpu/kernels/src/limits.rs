//! What the processor gives at most, by loops that do nothing else: what kernels are measured by.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use polygrad_core::Result;

use crate::CpuDevice;
use crate::buffers::{self, Buffer};
use crate::gemm::bytes;
use crate::simd::{Kernel, Level, Simd};

/// The fewest runs of a loop, and the fewest seconds for all of them; the fastest run counts.
const TURNS: usize = 3;
const SECONDS: f64 = 0.05;

/// Independent sums: as many instructions are on their way at a time, and no more than there are registers.
const SUMS: usize = 12;

/// Bytes of each thread that stay in the second level of the cache.
const NEAR: usize = 512 << 10;

/// Bytes that do not stay in the last level, for one thread, and for each of many.
const FAR: usize = 256 << 20;
const LEAST_FAR: usize = 32 << 20;

/// The most that a device can do in a second.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Additions and multiplications of f32 by fused instructions, two for each pair.
    pub flops: f64,
    /// The same of bytes, by the instructions that products of bytes are made of.
    pub byte_ops: f64,
    /// Bytes that are read from the second level of the cache.
    pub near: f64,
    /// Bytes that are read from memory.
    pub far: f64,
}

impl Limits {
    /// Measures a device with all its threads, in less than a second; needs 256 MiB, and 32 MiB for each thread.
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
        // SAFETY: the buffer has room; its pages are there from now on.
        unsafe { buffer.as_ptr().write_bytes(1, threads * far) };
        let read = |bytes: usize, again: usize| {
            best(device, |thread| {
                // SAFETY: the buffer is written, and has as much for each thread.
                let part = unsafe { std::slice::from_raw_parts(buffer.as_ptr().add(thread * far), bytes) };
                level.run(Read { part, again })
            })
        };
        let (near, far) = (read(NEAR, 64), read(far, 1));
        drop(buffer);
        // The pool would keep it, and what is measured next would find its memory ready.
        buffers::flush();
        Ok(Self {
            flops,
            byte_ops,
            near,
            far,
        })
    }
}

/// What all threads do in a second, of work that says how much it did.
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

/// Sums of what lies in memory.
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
                    // SAFETY: the part has as many numbers; all bits are some f32, and a buffer is aligned.
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
