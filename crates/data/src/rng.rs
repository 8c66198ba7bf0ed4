//! Random numbers that depend on a seed, an epoch and an example, and on nothing else.

use polygrad_core::philox4x32;

/// The chance decisions about one example in one epoch: the same whichever thread makes them, and after a run was stopped and goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    key: u64,
    drawn: u64,
}

/// The top bit keeps the counters apart from those of the thread's generator, which begin at 0.
fn counter(epoch: u64) -> u64 {
    1 << 63 | epoch << 33
}

fn joined([high, low]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Rng {
    /// A generator of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self { key: seed, drawn: 0 }
    }

    /// That of example number `index`, below 2³², in an epoch, below 2³⁰.
    pub(crate) fn of_example(seed: u64, epoch: u64, index: u64) -> Self {
        let [high, low, ..] = philox4x32(seed, counter(epoch) + (1 << 32) + index);
        Self::new(joined([high, low]))
    }

    /// Any 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [high, low, ..] = philox4x32(self.key, self.drawn);
        self.drawn += 1;
        joined([high, low])
    }

    /// Uniform on `[0, 1)`, with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (0.5_f64).powi(53)
    }

    /// A whole number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        scaled(self.next_u64(), bound)
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

/// 64 random bits as a whole number below `bound`.
fn scaled(bits: u64, bound: usize) -> usize {
    ((u128::from(bits) * bound as u128) >> 64) as usize
}

/// The numbers below `count`, which is below 2³², in an order of chance for each seed and epoch.
///
/// Source: Fisher and Yates's shuffle, as Durstenfeld has it (CACM algorithm 235, 1964).
pub(crate) fn shuffled(seed: u64, epoch: u64, count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        let [high, low, ..] = philox4x32(seed, counter(epoch) + last as u64);
        order.swap(last, scaled(joined([high, low]), last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_an_order_of_its_own() {
        let mut sorted = shuffled(1, 0, 1000);
        assert_eq!(sorted, shuffled(1, 0, 1000));
        assert_ne!(sorted, shuffled(1, 1, 1000));
        assert_ne!(sorted, shuffled(2, 0, 1000));
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        // Over many epochs each place sees each number about equally often.
        let sum: u32 = (0..4000).map(|epoch| shuffled(3, epoch, 5)[0]).sum();
        assert!((7600..8400).contains(&sum), "{sum}");
    }

    #[test]
    fn numbers_have_their_distributions() {
        let of = |index| Rng::of_example(5, 2, index);
        assert_eq!(of(3).next_u64(), of(3).next_u64());
        let mut seen: Vec<u64> = (0..1000).map(|index| of(index).next_u64()).collect();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
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
}
