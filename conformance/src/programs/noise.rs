//! The reference with its numbers perturbed by as much as a dtype rounds them, to find the errors that the condition of
//! a program explains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use polygrad_core::{AnyTensor, DType, HostTensor, Op, Result, philox4x32};
use polygrad_tensor::{Device, f16};

use super::steps::{Place, Stepwise};
use crate::tolerance::digits;
use crate::{Call, Hooks, Wrapped};

/// The digits of f64 itself cannot be removed in f64, so this many fewer are kept, which shows the same effect
/// enlarged.
const LOST: i32 = 4;

/// The size of the perturbation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Binary digits of results that are kept.
    digits: i32,
    /// Those of the steps within a call: narrow dtypes are computed in f32, and rounded once.
    steps: i32,
    /// The spacing of the smallest numbers of the dtype.
    smallest: f64,
    /// The divisor for differences.
    pub(crate) scale: f64,
    /// Whether numbers are rounded to nearest, as on devices, rather than moved at random. Only then do nearly equal
    /// numbers become equal, in which case minimum and maximum share their gradient.
    is_nearest: bool,
}

impl Noise {
    /// The perturbation for rounding to a dtype.
    pub(crate) fn of(dtype: DType) -> Self {
        let own = digits(dtype).unwrap_or(53);
        let wide = digits(DType::F32).map_or(own, |least| own.max(least));
        let kept = own.min(53 - LOST);
        Self {
            digits: kept,
            steps: wide.min(53 - LOST),
            smallest: match dtype {
                DType::F16 => f16::from_bits(1).to_f64(),
                _ => 0.0,
            },
            scale: f64::powi(2.0, own - kept),
            is_nearest: false,
        }
    }

    /// Stronger by this many binary digits.
    pub(crate) fn stronger(self, bits: i32) -> Self {
        Self {
            digits: self.digits - bits,
            steps: self.steps - bits,
            scale: 1.0,
            ..self
        }
    }

    /// Rounding to nearest.
    pub(crate) fn nearest(self) -> Self {
        Self {
            is_nearest: true,
            ..self
        }
    }

    /// A device whose results are perturbed.
    pub(crate) fn device(self, seed: u64) -> Noisy {
        Noisy::over(Disturbing {
            noise: Some(self),
            seed,
            ..Disturbing::default()
        })
    }
}

/// A device wrapped around the reference that runs fused ops step by step and records the largest number.
pub(crate) struct Noisy {
    hooks: Arc<Disturbing>,
    wrapped: Wrapped,
}

impl Noisy {
    /// A device without perturbation.
    pub(crate) fn silent() -> Self {
        Self::over(Disturbing::default())
    }

    fn over(hooks: Disturbing) -> Self {
        let hooks = Arc::new(hooks);
        let steps = Device::<Stepwise>::from_inner(Place(Arc::clone(&hooks)));
        Self {
            wrapped: Wrapped::new(&steps, Arc::clone(&hooks)),
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

    /// The number of its live tensors.
    pub(crate) fn live(&self) -> usize {
        self.wrapped.live_tensors()
    }
}

/// Perturbs the results of calls and of their steps.
#[derive(Default)]
pub(super) struct Disturbing {
    noise: Option<Noise>,
    seed: u64,
    drawn: AtomicU64,
    /// The bits of a non-negative number, which are ordered like the numbers.
    largest: AtomicU64,
    /// Whether the current call has several steps. A device is only used by one thread.
    has_steps: AtomicBool,
}

impl Disturbing {
    /// The perturbed result of a step within a call; `None` if it is unchanged.
    ///
    /// # Errors
    /// Errors of `host`.
    pub(super) fn step(&self, host: impl FnOnce() -> Result<HostTensor>) -> Result<Option<HostTensor>> {
        match self.noise {
            Some(noise) if self.has_steps.load(Ordering::Relaxed) => {
                let host = host()?;
                self.disturbed(&host, host.to_f64_vec(), noise.steps, noise).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Moves each number to a neighbour. Integers are kept, since they have not been rounded.
    fn disturbed(&self, host: &HostTensor, mut numbers: Vec<f64>, digits: i32, noise: Noise) -> Result<HostTensor> {
        let counted = numbers.len().div_ceil(4) as u64;
        let first = self.drawn.fetch_add(counted, Ordering::Relaxed);
        for (i, four) in numbers.chunks_mut(4).enumerate() {
            let words = philox4x32(self.seed, first + i as u64);
            for (x, word) in four.iter_mut().zip(words) {
                if *x != x.trunc() && x.is_normal() {
                    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
                    let unit = f64::powi(2.0, exponent + 1 - digits).max(noise.smallest);
                    match noise.is_nearest {
                        true => *x = (*x / unit).round_ties_even() * unit,
                        false => *x += (f64::from(word) / 4_294_967_296.0 - 0.5) * unit,
                    }
                }
            }
        }
        Ok(HostTensor::new(*host.shape(), numbers)?.cast(host.dtype()))
    }
}

impl Hooks for Disturbing {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        let has_steps = match call {
            Call::Op(Op::Binary(op)) => op.is_fused(),
            // A bias, a residual and an activation follow.
            Call::Op(Op::Conv { .. }) => true,
            Call::Op(op) => op.is_fused(),
            _ => false,
        };
        self.has_steps.store(has_steps, Ordering::Relaxed);
        Ok(())
    }

    fn after(&self, call: &Call<'_>, result: AnyTensor) -> Result<AnyTensor> {
        if !result.dtype().is_float() || matches!(call, Call::ToHost | Call::Full) {
            return Ok(result);
        }
        let backend = result.backend();
        let host = backend.to_host(&result)?;
        let numbers = host.to_f64_vec();
        // Infinities are intended, as in masks.
        let finite = numbers.iter().filter(|x| x.is_finite());
        let largest = finite.fold(0.0f64, |most, x| most.max(x.abs()));
        self.largest.fetch_max(largest.to_bits(), Ordering::Relaxed);
        let Some(noise) = self.noise else {
            return Ok(result);
        };
        let disturbed = self.disturbed(&host, numbers, noise.digits, noise)?;
        backend.from_host(disturbed, &backend.device(&result)?)
    }
}
