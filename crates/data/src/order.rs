//! Random numbers that depend only on a seed, an epoch and an example.

use polygrad_core::Rng;

/// The top bit separates these counters from those of the thread's generator, which begin at 0.
fn counter(epoch: u64) -> u64 {
    1 << 63 | epoch << 33
}

/// The generator for example number `index`, below 2³², in an epoch, below 2³⁰. It does not depend on the thread, nor
/// on whether a run was interrupted.
pub(crate) fn rng_of_example(seed: u64, epoch: u64, index: u64) -> Rng {
    Rng::new(Rng::at(seed, counter(epoch) + (1 << 32) + index).next_u64())
}

/// The numbers below `count`, which is below 2³², shuffled by seed and epoch.
///
/// Source: Fisher and Yates's shuffle in Durstenfeld's version (CACM algorithm 235, 1964).
pub(crate) fn shuffled(seed: u64, epoch: u64, count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        let chosen = Rng::at(seed, counter(epoch) + last as u64).below(last + 1);
        order.swap(last, chosen);
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
        // Over many epochs each position gets each number about equally often.
        let sum: u32 = (0..4000).map(|epoch| shuffled(3, epoch, 5)[0]).sum();
        assert!((7600..8400).contains(&sum), "{sum}");
    }

    #[test]
    fn every_example_has_numbers_of_its_own() {
        let of = |index| rng_of_example(5, 2, index);
        assert_eq!(of(3).next_u64(), of(3).next_u64());
        let mut seen: Vec<u64> = (0..1000).map(|index| of(index).next_u64()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    }
}
