//! The peak rate of the instructions.

use std::hint::black_box;

use super::dot::{Dot, Way, Work};
use crate::CpuDevice;

/// Independent sums.
const SUMS: usize = 12;

struct Multiply {
    rounds: usize,
}

impl Work for Multiply {
    type Out = f64;

    #[inline(always)]
    fn run<D: Dot>(self, d: D) -> f64 {
        let y = d.splat(black_box(0x0101_0101));
        let mut sums = [d.splat(black_box(1)); SUMS];
        for _ in 0..self.rounds {
            for sum in &mut sums {
                // The sum itself is an operand, since the compiler would move a constant product out of the loop.
                *sum = d.dot(*sum, *sum, y);
            }
        }
        black_box(sums);
        (2 * D::GROUP * D::LANES * SUMS * self.rounds) as f64
    }
}

/// Multiplies and adds bytes in registers, and returns the number of operations.
pub fn multiplied(device: CpuDevice, rounds: usize) -> f64 {
    Way::of(device).run(Multiply { rounds })
}
