//! Softmax cross entropy with its gradient, in one pass over the rows.

use crate::rows::{Row, WIDTH};

/// The classes that fit.
pub const CLASSES: usize = 16;

/// What a row adds to the loss: the sum of exponentials, whose logarithms are summed as a product's, and the target's
/// distance from the most likely class.
pub struct Share {
    pub sum: f32,
    pub distance: f32,
}

/// The gradient takes the row's place among the logits' gradients; absent classes have −∞ for a logit, and get none.
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

/// Halves upon halves, so that the order of additions is that of registers.
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

/// e^x without branches, for x of at most 0, to some units of the last place.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = if x > -87.0 { x } else { -87.0 };
    // So large a number that the last bit of the sum is 1: it is rounded, and the power stands in the lowest bits.
    let shifted = x.mul_add(std::f32::consts::LOG2_E, LARGE);
    let power = shifted - LARGE;
    // ln 2 in two parts, the first of few digits.
    let rest = power.mul_add(-0.693_359_4, x);
    let rest = power.mul_add(2.121_944_4e-4, rest);
    let terms = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let series = terms.into_iter().fold(0f32, |sum, term| sum.mul_add(rest, term));
    series * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}
