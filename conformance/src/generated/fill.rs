//! Random numbers with fixed seeds.

use polygrad_core::philox4x32;

/// The values of an operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fill {
    /// Reals from `low` to `high`; as integers they are rounded towards 0.
    Range(f64, f64),
    /// Reals of both signs whose magnitude is in this range: away from 0, for functions that are steep there.
    Away(f64, f64),
    /// Integers from 0 up to this limit (exclusive).
    Below(usize),
    /// The integers from 0 on, each once, in an irregular order.
    Distinct,
    /// NaN, infinities, zeros of both signs, the smallest and large numbers, and a few ordinary ones, cyclically.
    Special,
    /// These values, cyclically.
    Listed(&'static [f64]),
}

const SPECIAL: [f64; 14] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    1.5,
    6e4,
    -6e4,
    1e-7,
    3.0,
];

/// `count` values.
pub(crate) fn values(fill: &Fill, count: usize, seed: u64) -> Vec<f64> {
    let uniform = |i: usize| f64::from(philox4x32(seed, i as u64)[0]) / (f64::from(u32::MAX) + 1.0);
    let draw = |i: usize| match *fill {
        Fill::Range(low, high) => low + (high - low) * uniform(i),
        Fill::Away(low, high) => {
            let magnitude = low + (high - low) * uniform(i);
            if philox4x32(seed, i as u64)[1].is_multiple_of(2) {
                magnitude
            } else {
                -magnitude
            }
        }
        Fill::Below(below) => (uniform(i) * below as f64).floor(),
        // A step that is coprime to the count visits each number once.
        Fill::Distinct => ((i * coprime(count) + seed as usize) % count.max(1)) as f64,
        Fill::Special => SPECIAL[(i + seed as usize) % SPECIAL.len()],
        Fill::Listed(list) => list[i % list.len()],
    };
    (0..count).map(draw).collect()
}

/// A number near 0.6 times this one that is coprime to it.
fn coprime(count: usize) -> usize {
    let factor = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (count * 3 / 5..)
        .find(|&step| factor(step.max(1), count.max(1)) == 1)
        .unwrap_or(1)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_numbers_are_distinct() {
        for count in 1..40 {
            let mut seen = values(&Fill::Distinct, count, 7);
            seen.sort_by(f64::total_cmp);
            assert_eq!(seen, (0..count).map(|i| i as f64).collect::<Vec<_>>());
        }
    }
}
