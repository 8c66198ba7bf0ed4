//! The generator of random numbers: one for each thread, as programs in PyTorch expect.

use std::cell::Cell;

use polygrad_core::{Backend, DType, Distribution, IntoShape, RandomKey, Result};

use crate::ops::in_making;
use crate::{Device, Tensor};

/// PyTorch's default seed; here too a program that sets none gives the same numbers each time.
const DEFAULT_SEED: u64 = 67_280_421_310_721;

thread_local! {
    static GENERATOR: Cell<RandomKey> = const { Cell::new(RandomKey { seed: DEFAULT_SEED, offset: 0 }) };
}

/// Where this thread's stream of random numbers stands: to be kept in a checkpoint and restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorState {
    /// The seed.
    pub seed: u64,
    /// How many numbers were drawn.
    pub offset: u64,
}

impl GeneratorState {
    /// This thread's.
    pub fn current() -> Self {
        let RandomKey { seed, offset } = GENERATOR.get();
        Self { seed, offset }
    }

    /// Continues this thread's stream from here.
    pub fn restore(self) {
        let Self { seed, offset } = self;
        GENERATOR.set(RandomKey { seed, offset });
    }
}

/// Starts this thread's stream of random numbers anew. The numbers depend on the seed alone, not on the backend.
pub fn manual_seed(seed: u64) {
    GeneratorState { seed, offset: 0 }.restore();
}

/// Runs `f` with the thread's stream at `state`, and puts it back afterwards.
pub(crate) fn with_generator_state<R>(state: GeneratorState, f: impl FnOnce() -> R) -> R {
    struct Restore(GeneratorState);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.restore();
        }
    }
    let _restore = Restore(GeneratorState::current());
    state.restore();
    f()
}

/// The key for a draw of `count` numbers, which it takes from this thread's stream.
pub(crate) fn next_key(count: usize) -> RandomKey {
    let key = GENERATOR.get();
    GENERATOR.set(RandomKey {
        offset: key.offset.wrapping_add(count as u64),
        ..key
    });
    key
}

impl<B: Backend> Tensor<B> {
    /// Random numbers from this thread's generator.
    ///
    /// # Errors
    /// When the distribution's parameters make no sense, or memory runs out.
    pub fn random(shape: impl IntoShape, distribution: Distribution, dtype: DType, device: &Device<B>) -> Result<Self> {
        let shape = shape.into_shape()?;
        polygrad_core::check_distribution(distribution)?;
        let key = next_key(shape.numel());
        B::random(shape, distribution, dtype, key, device.inner())
            .map(Self::from_inner)
            .map_err(|e| in_making(e, "random", shape, dtype, device))
    }

    /// f32, uniform on `[0, 1)`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn rand(shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        Self::random(shape, Distribution::Uniform { low: 0.0, high: 1.0 }, DType::F32, device)
    }

    /// f32, normal with mean 0 and standard deviation 1.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn randn(shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        Self::random(shape, Distribution::Normal { mean: 0.0, std: 1.0 }, DType::F32, device)
    }

    /// i64, uniform on `low..high`.
    ///
    /// # Errors
    /// When the range is empty, or memory runs out.
    pub fn randint(low: i64, high: i64, shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        Self::random(shape, Distribution::Integers { low, high }, DType::I64, device)
    }

    /// The numbers `0..n` in random order, i64.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn randperm(n: usize, device: &Device<B>) -> Result<Self> {
        let keys = Self::random([n], Distribution::Uniform { low: 0.0, high: 1.0 }, DType::F64, device)?;
        Ok(keys.sort(0, false)?.1)
    }
}
