//! Random numbers for generated cases: reproducible from a seed on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64, index: u64) -> Self {
        let mut draw = Self(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
        draw.bits();
        draw
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `count - 1`; `count` is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// True with probability 1 / `count`.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A number between both bounds, inclusive.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    /// One of these.
    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Uniform from −1 to 1.
    pub(crate) fn real(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}
