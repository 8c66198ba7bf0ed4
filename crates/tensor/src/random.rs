//! The random number generator of each thread.

use std::cell::Cell;

use polygrad_core::{Backend, DType, Distribution, Error, IntoShape, RandomKey, Result, with_local};

use crate::ops::{context, in_making};
use crate::{Device, Place, Tensor};

/// PyTorch's default seed. As there, a program that sets no seed draws the same numbers each time.
const DEFAULT_SEED: u64 = 67_280_421_310_721;

thread_local! {
    static GENERATOR: Cell<RandomKey> = const { Cell::new(RandomKey { seed: DEFAULT_SEED, offset: 0 }) };
}

/// The state of this thread's random numbers, which can be saved in a checkpoint and restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorState {
    /// The seed.
    pub seed: u64,
    /// The number of random numbers drawn.
    pub offset: u64,
}

impl GeneratorState {
    /// The state of this thread.
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

/// Restarts this thread's stream of random numbers. The numbers only depend on the seed, not on the backend.
pub fn manual_seed(seed: u64) {
    GeneratorState { seed, offset: 0 }.restore();
}

/// Runs `f` with the thread's stream at `state`, and restores the stream afterwards.
pub(crate) fn with_generator_state<R>(state: GeneratorState, f: impl FnOnce() -> R) -> R {
    let GeneratorState { seed, offset } = state;
    with_local(&GENERATOR, RandomKey { seed, offset }, f)
}

/// The key for a draw of `count` numbers; advances this thread's stream by `count`.
pub(crate) fn next_key(count: usize) -> RandomKey {
    let key = GENERATOR.get();
    GENERATOR.set(RandomKey {
        offset: key.offset.wrapping_add(count as u64),
        ..key
    });
    key
}

impl<B: Backend> Tensor<B> {
    /// Random numbers from this thread's generator; f32, or i64 for integers, unless a dtype is given.
    ///
    /// # Errors
    /// When the distribution's parameters make no sense, or memory runs out.
    pub fn random(shape: impl IntoShape, distribution: Distribution, place: impl Place<B>) -> Result<Self> {
        let usual = match distribution {
            Distribution::Integers { .. } => DType::I64,
            _ => DType::F32,
        };
        let (device, dtype) = (place.device(), place.dtype().unwrap_or(usual));
        let shape = shape.into_shape()?;
        polygrad_core::check_distribution(distribution)?;
        let key = next_key(shape.numel());
        B::random(shape, distribution, dtype, key, device.inner())
            .map(Self::from_inner)
            .map_err(|e| in_making(e, "random", shape, dtype, device))
    }

    /// Uniform on `[0, 1)`; f32 unless a dtype is given.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn rand(shape: impl IntoShape, place: impl Place<B>) -> Result<Self> {
        Self::random(shape, Distribution::Uniform { low: 0.0, high: 1.0 }, place)
    }

    /// Normal with mean 0 and standard deviation 1; f32 unless a dtype is given.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn randn(shape: impl IntoShape, place: impl Place<B>) -> Result<Self> {
        Self::random(shape, Distribution::Normal { mean: 0.0, std: 1.0 }, place)
    }

    /// Integers, uniform on `low..high`; i64 unless a dtype is given.
    ///
    /// # Errors
    /// When the range is empty, or memory runs out.
    pub fn randint(low: i64, high: i64, shape: impl IntoShape, place: impl Place<B>) -> Result<Self> {
        Self::random(shape, Distribution::Integers { low, high }, place)
    }

    /// The numbers `0..n` in random order, i64.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn randperm(n: usize, device: &Device<B>) -> Result<Self> {
        let keys = Self::random([n], Distribution::Uniform { low: 0.0, high: 1.0 }, (device, DType::F64))?;
        Ok(keys.sort(0, false)?.1)
    }

    /// Indices along the last axis, i64, drawn with these weights, which need not sum to 1: `[…, num_samples]` of
    /// `[…, C]`. Without replacement no index is drawn twice. Weights must be 0 or above, and not all 0; this is not
    /// checked.
    ///
    /// Source: the largest of logarithms with Gumbel noise; Kool and others, "Stochastic beams and where to find them"
    /// (2019), for draws without replacement.
    ///
    /// # Errors
    /// For a tensor of rank 0 or of integers; without replacement, when there are fewer weights than samples;
    /// when memory runs out.
    pub fn multinomial(&self, num_samples: usize, replacement: bool) -> Result<Self> {
        if !self.dtype().is_float() {
            let error = Error::dtype("weights are floats").with_hint("convert them with to_dtype");
            return Err(context(error, "multinomial", &[self]));
        }
        let weights = self.detach().to_dtype(self.dtype().promote(DType::F32))?;
        weights.log()?.multinomial_logits(num_samples, replacement)
    }

    /// [`Tensor::multinomial`] with weights whose logarithms these are.
    ///
    /// # Errors
    /// As [`Tensor::multinomial`].
    pub fn multinomial_logits(&self, num_samples: usize, replacement: bool) -> Result<Self> {
        let fail = |e| context(e, "multinomial", &[self]);
        let shape = self.shape();
        let &[ref lead @ .., classes] = shape.dims() else {
            return Err(fail(Error::shape("a tensor of rank 0 has no axis to draw along")));
        };
        if !self.dtype().is_float() {
            return Err(fail(
                Error::dtype("logits are floats").with_hint("convert them with to_dtype"),
            ));
        }
        if classes == 0 || !replacement && num_samples > classes {
            return Err(fail(Error::invalid(format!(
                "{num_samples} samples cannot be drawn from {classes} weights"
            ))));
        }
        let draws = if replacement { num_samples } else { 1 };
        // Neither bound, so that both logarithms are finite: log1p of a number near 0 is as precise as the number.
        let uniform = Distribution::Uniform {
            low: -f64::from(1f32.next_down()),
            high: 0.0,
        };
        let uniform = Self::random([lead, &[draws, classes]].concat(), uniform, &self.device())?;
        let waiting = uniform.log1p()?.neg()?;
        let logits = self.detach().to_dtype(DType::F32)?;
        let keys = logits.unsqueeze(-2)?.sub(&waiting.log()?)?;
        if replacement {
            return keys.argmax(-1);
        }
        let (_, order) = keys.squeeze(-2)?.sort(-1, true)?;
        order.narrow(-1, 0, num_samples)
    }
}
