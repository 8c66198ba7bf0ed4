//! How a loop over elements runs: with which instructions, and where its results are stored.

use super::{Kernel, Level, portable};

/// A result of so many bytes is stored past the caches: few would hold it until it is read, and a store into a cache
/// reads the line first that it overwrites.
const STREAMING_BYTES: usize = 32 << 20;

/// How a loop over elements runs.
#[derive(Clone, Copy)]
pub struct StorePolicy {
    level: Option<Level>,
    streaming: bool,
}

impl StorePolicy {
    /// With these instructions, or the plain kernels, for a result of so many bytes that is not among the operands.
    #[inline]
    pub fn new(level: Option<Level>, bytes: usize) -> Self {
        let streaming = bytes >= STREAMING_BYTES;
        Self { level, streaming }
    }

    /// For a result that stays in the caches, such as one of a few elements at a time.
    #[inline]
    pub fn cached(level: Option<Level>) -> Self {
        Self {
            level,
            streaming: false,
        }
    }

    #[inline]
    pub fn level(self) -> Option<Level> {
        self.level
    }

    /// As [`Level::run`]; without a level for no instruction set in particular.
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the level says that the CPU has the instructions.
            Some(Level::Avx512) => unsafe { super::avx512::run_streaming(kernel, self.streaming) },
            _ => self.run_loops(kernel),
        }
    }

    /// As [`Level::run_loops`].
    #[inline(always)]
    pub fn run_loops<K: Kernel>(self, kernel: K) -> K::Out {
        match self.level {
            None | Some(Level::Portable) => portable::run(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the level says that the CPU has the instructions; those with AVX-512 have AVX2.
            Some(Level::Avx2 | Level::Avx512) => unsafe { super::avx2::run_streaming(kernel, self.streaming) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the level says that the CPU has the instructions.
            Some(Level::Neon) => unsafe { super::neon::run(kernel) },
        }
    }
}
