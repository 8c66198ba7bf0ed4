//! A sequential generator of random numbers.

use crate::philox4x32;

/// A generator that only depends on its seed and the number of draws, so that it gives the same numbers in every thread
/// and on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    key: u64,
    drawn: u64,
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self::at(seed, 0)
    }

    /// The generator of a seed after `drawn` draws of 64 bits.
    pub fn at(seed: u64, drawn: u64) -> Self {
        Self { key: seed, drawn }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [high, low, ..] = philox4x32(self.key, self.drawn);
        self.drawn = self.drawn.wrapping_add(1);
        u64::from(high) << 32 | u64::from(low)
    }

    /// Uniform on `[0, 1)`, with 53 random bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A whole number below `bound`; 0 for a bound of 0.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// From the normal distribution with mean 0 and standard deviation 1.
    ///
    /// Source: Box and Muller, "A note on the generation of random normal deviates" (1958).
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_distributions() {
        let mut rng = Rng::new(7);
        let n = 20_000;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let uniform: Vec<f64> = (0..n).map(|_| rng.uniform()).collect();
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
        assert!((mean(&uniform) - 0.5).abs() < 0.01);
        let normal: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let squares: Vec<f64> = normal.iter().map(|x| x * x).collect();
        assert!(mean(&normal).abs() < 0.03 && (mean(&squares) - 1.0).abs() < 0.05);
        let right = (0..n).filter(|_| rng.chance(0.25)).count();
        assert!((4700..5300).contains(&right), "{right}");
        assert!((0..n).all(|_| rng.below(3) < 3) && rng.below(0) == 0);
    }

    #[test]
    fn a_generator_goes_on_from_any_place() {
        let mut rng = Rng::new(3);
        let drawn: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        assert_eq!(rng, Rng::at(3, 5));
        assert_eq!(Rng::at(3, 2).next_u64(), drawn[2]);
    }
}
