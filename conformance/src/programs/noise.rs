//! The reference with its numbers disturbed as much as a dtype rounds them: what the condition of a program explains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polygrad_core::{AnyTensor, DType, HostTensor, Result, philox4x32};
use polygrad_reference::Reference;
use polygrad_tensor::{Device, f16};

use crate::tolerance::digits;
use crate::{Call, Hooks, Wrapped};

/// The digits that f64 itself has cannot be taken away in f64: some fewer show the same, enlarged.
const LOST: i32 = 4;

/// How much numbers are disturbed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Binary digits that stay.
    digits: i32,
    /// The distance of the smallest numbers that the dtype holds.
    smallest: f64,
    /// What differences are to be divided by.
    pub(crate) scale: f64,
}

impl Noise {
    /// That of rounding to a dtype.
    pub(crate) fn of(dtype: DType) -> Self {
        let own = digits(dtype).unwrap_or(53);
        let digits = own.min(53 - LOST);
        Self {
            digits,
            smallest: match dtype {
                DType::F16 => f16::from_bits(1).to_f64(),
                _ => 0.0,
            },
            scale: f64::powi(2.0, own - digits),
        }
    }

    /// Extra binary digits, so that no division is needed.
    pub(crate) fn stronger(self, bits: i32) -> Self {
        Self {
            digits: self.digits - bits,
            scale: 1.0,
            ..self
        }
    }

    /// A device whose results are disturbed.
    pub(crate) fn device(self, seed: u64) -> Noisy {
        let hooks = Arc::new(Disturbing {
            noise: Some(self),
            seed,
            drawn: AtomicU64::new(0),
            largest: AtomicU64::new(0),
        });
        Noisy::over(hooks)
    }
}

/// A device over the reference, which takes down how large numbers get.
pub(crate) struct Noisy {
    hooks: Arc<Disturbing>,
    wrapped: Wrapped,
}

impl Noisy {
    /// One that disturbs nothing.
    pub(crate) fn silent() -> Self {
        Self::over(Arc::new(Disturbing {
            noise: None,
            seed: 0,
            drawn: AtomicU64::new(0),
            largest: AtomicU64::new(0),
        }))
    }

    fn over(hooks: Arc<Disturbing>) -> Self {
        Self {
            wrapped: Wrapped::new(&Device::<Reference>::default(), Arc::clone(&hooks)),
            hooks,
        }
    }

    pub(crate) fn device(&self) -> Device {
        self.wrapped.device()
    }

    /// The largest finite magnitude of any result.
    pub(crate) fn largest(&self) -> f64 {
        f64::from_bits(self.hooks.largest.load(Ordering::Relaxed))
    }

    /// Its tensors that are alive.
    pub(crate) fn live(&self) -> usize {
        self.wrapped.live_tensors()
    }
}

struct Disturbing {
    noise: Option<Noise>,
    seed: u64,
    drawn: AtomicU64,
    /// The bits of a number that is not negative, which are in the numbers' order.
    largest: AtomicU64,
}

impl Noise {
    /// A neighbour, up or down at random. Whole numbers stay: nothing has rounded them.
    fn disturb(self, value: f64, uniform: f64) -> f64 {
        if value == value.trunc() || !value.is_normal() {
            return value;
        }
        let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        let unit = f64::powi(2.0, exponent + 1 - self.digits).max(self.smallest);
        value + (uniform - 0.5) * unit
    }
}

impl Hooks for Disturbing {
    fn after(&self, call: &Call<'_>, result: AnyTensor) -> Result<AnyTensor> {
        if !result.dtype().is_float() || matches!(call, Call::ToHost | Call::Full) {
            return Ok(result);
        }
        let backend = result.backend();
        let host = backend.to_host(&result)?;
        let mut numbers = host.to_f64_vec();
        // Infinities are meant: masks are made of them.
        let finite = numbers.iter().filter(|x| x.is_finite());
        let largest = finite.fold(0.0f64, |most, x| most.max(x.abs()));
        self.largest.fetch_max(largest.to_bits(), Ordering::Relaxed);
        let Some(noise) = self.noise else {
            return Ok(result);
        };
        let counted = numbers.len().div_ceil(4) as u64;
        let first = self.drawn.fetch_add(counted, Ordering::Relaxed);
        for (i, four) in numbers.chunks_mut(4).enumerate() {
            let words = philox4x32(self.seed, first + i as u64);
            for (x, word) in four.iter_mut().zip(words) {
                *x = noise.disturb(*x, f64::from(word) / 4_294_967_296.0);
            }
        }
        let disturbed = HostTensor::new(*host.shape(), numbers)?.cast(host.dtype());
        backend.from_host(disturbed, &backend.device(&result)?)
    }
}
