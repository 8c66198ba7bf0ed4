//! The reference with every step rounded: shows the effect of a dtype's digits, independent of its range.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polygrad_core::{AnyTensor, HostTensor, Result, philox4x32};
use polygrad_reference::Reference;
use polygrad_tensor::{AnyBackend, Device};

use crate::{Call, Hooks, Wrapped};

/// A device that computes each op in f64, and rounds its results to this many binary digits, up or down at random with
/// the nearer neighbour more likely. Numbers with that many digits are unchanged, and the range is that of f64, which
/// avoids overflows.
///
/// Source: Forsythe, "Reprint of a note on rounding-off errors" (1959); Parker, "Monte Carlo arithmetic" (1997).
pub(super) fn device(digits: i32, seed: u64) -> Device<AnyBackend> {
    let rounding = Rounding {
        digits,
        seed,
        drawn: AtomicU64::new(0),
    };
    Wrapped::new(&Device::<Reference>::default(), Arc::new(rounding)).device()
}

struct Rounding {
    digits: i32,
    seed: u64,
    drawn: AtomicU64,
}

impl Rounding {
    fn round(&self, value: f64) -> f64 {
        if value == 0.0 || !value.is_normal() {
            return value;
        }
        let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        // In two steps, since the unit itself may be below the range of f64.
        let (unit, scale) = (f64::powi(2.0, self.digits - 1), f64::powi(2.0, -exponent));
        let scaled = value * scale * unit;
        if scaled == scaled.trunc() {
            return value;
        }
        let uniform = f64::from(philox4x32(self.seed, self.drawn.fetch_add(1, Ordering::Relaxed))[0]) / 4_294_967_296.0;
        let below = scaled.floor();
        let rounded = if scaled - below > uniform { below + 1.0 } else { below };
        rounded / unit / scale
    }
}

impl Hooks for Rounding {
    fn after(&self, _: &Call<'_>, result: AnyTensor) -> Result<AnyTensor> {
        if !result.dtype().is_float() {
            return Ok(result);
        }
        let backend = result.backend();
        let host = backend.to_host(&result)?;
        let rounded: Vec<f64> = host.to_f64_vec().into_iter().map(|x| self.round(x)).collect();
        let rounded = HostTensor::new(*host.shape(), rounded)?.cast(host.dtype());
        backend.from_host(rounded, &backend.device(&result)?)
    }
}

#[cfg(test)]
mod tests {
    use polygrad_tensor::Tensor;

    use super::*;

    fn thirds(digits: i32, seed: u64) -> Vec<f64> {
        let x = Tensor::from_slice(
            &[1.0f64, 2.0, 2f64.powi(1000), 2f64.powi(-1000), 6.0],
            [5],
            &device(digits, seed),
        )
        .unwrap();
        (x / 3.0).unwrap().to_f64_vec().unwrap()
    }

    #[test]
    fn results_are_rounded_to_a_neighbour_and_what_has_so_few_digits_stays() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let got = thirds(8, seed);
            for (x, truth) in got
                .iter()
                .zip([1.0, 2.0, 2f64.powi(1000), 2f64.powi(-1000), 6.0].map(|x| x / 3.0))
            {
                let off = (x - truth).abs() / truth;
                assert!(off < 1.0 / 128.0 && (off > 0.0 || truth == 2.0), "{x:e} for {truth:e}");
            }
            assert_eq!(got[4], 2.0);
            seen.insert(got[0].to_bits());
        }
        assert_eq!(seen.len(), 2);
    }
}
