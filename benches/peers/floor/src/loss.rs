//! Softmax cross entropy with its gradient, in one pass over the rows.

use crate::rows::{Row, WIDTH};

/// The most classes.
pub const CLASSES: usize = 16;

/// A row's contribution to the loss: the sum of exponentials, so that the logarithm of the rows' product can be taken
/// once, and the target's distance from the most likely class.
pub struct Share {
    pub sum: f32,
    pub distance: f32,
}

/// Writes the gradient to the row's place among the logits' gradients. Absent classes have a logit of −∞, and a
/// gradient of 0.
pub fn cross_entropy(logits: &[f32; CLASSES], target: usize, rows: usize, gradient: &mut Row) -> Share {
    let most = reduce(*logits, |a, b| if a > b { a } else { b });
    let mut exponentials = *logits;
    for x in &mut exponentials {
        *x = if *x == f32::NEG_INFINITY { 0.0 } else { exp(*x - most) };
    }
    let sum = reduce(exponentials, |a, b| a + b);
    let factor = 1.0 / (sum * rows as f32);
    gradient.0 = [0.0; WIDTH];
    for (gradient, x) in gradient.0.iter_mut().zip(exponentials) {
        *gradient = x * factor;
    }
    gradient.0[target] -= 1.0 / rows as f32;
    Share {
        sum,
        distance: most - logits[target],
    }
}

/// Combines halves repeatedly, so that the order of additions is that of registers.
#[inline(always)]
pub fn reduce<const N: usize>(mut numbers: [f32; N], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            numbers[i] = join(numbers[i], numbers[i + half]);
        }
        half /= 2;
    }
    numbers[0]
}

/// 1.5 · 2^23.
const LARGE: f32 = 12_582_912.0;

/// e^x without branches, for x of at most 0, accurate to a few units in the last place.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = if x > -87.0 { x } else { -87.0 };
    // The sum is so large that its last bit stands for 1: this rounds it, and leaves the power in the lowest bits.
    let shifted = x.mul_add(std::f32::consts::LOG2_E, LARGE);
    let power = shifted - LARGE;
    // ln 2 in two parts, of which the first has few digits.
    let rest = power.mul_add(-0.693_359_4, x);
    let rest = power.mul_add(2.121_944_4e-4, rest);
    let terms = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let series = terms.into_iter().fold(0f32, |sum, term| sum.mul_add(rest, term));
    series * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}
