//! A fingerprint of observations and the like; the same in every build, since it is saved.

/// FNV-1a over words of 64 bits.
///
/// Source: Fowler, Noll and Vo, "The FNV non-cryptographic hash algorithm".
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(mut self, word: u64) -> Self {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self
    }

    pub(crate) fn add_all(self, words: impl IntoIterator<Item = u64>) -> Self {
        words.into_iter().fold(self, Self::add)
    }

    /// Adds the bits of numbers.
    pub(crate) fn numbers(self, numbers: &[f32]) -> Self {
        self.add_all(numbers.iter().map(|x| u64::from(x.to_bits())))
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
