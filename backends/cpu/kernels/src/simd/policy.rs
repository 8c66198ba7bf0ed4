//! How an element-wise loop runs: with which instructions, and where its results are stored.

use super::{Kernel, Level, portable};

/// Results of at least this many bytes bypass the caches: little of them would stay cached until they are read, and a
/// store to a cache first reads the line that it overwrites.
const STREAMING_BYTES: usize = 32 << 20;

/// How an element-wise loop runs.
#[derive(Clone, Copy)]
pub struct StorePolicy {
    level: Option<Level>,
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only x86 has stores past the caches here")
    )]
    streaming: bool,
}

impl StorePolicy {
    /// For a result of `bytes` bytes that is not among the operands; without a level, for the plain kernels.
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

    /// Like [`Level::run`]; without a level, for the architecture's baseline.
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the level says that the CPU has the instructions.
            Some(Level::Avx512) => unsafe { super::avx512::run_streaming(kernel, self.streaming) },
            _ => self.run_loops(kernel),
        }
    }

    /// Like [`Level::run_loops`].
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
