//! Generated cases: every op in every dtype and layout, compared with the reference backend in f64.

mod fill;
mod judge;
mod perf;
#[cfg(feature = "harness")]
mod random;
mod sample;
#[cfg(test)]
mod shapes;
mod table;

use std::collections::BTreeMap;

use polygrad_core::{DType, Op, Result};
use polygrad_tensor::{AnyBackend, Device};

use crate::case::{Case, Source};
use sample::{Layout, Sample};

pub use perf::{Timing, perf};
#[cfg(feature = "harness")]
pub(crate) use random::FAMILIES;

/// How a device computes each op in each dtype of its first tensor, by `label`: "native" if it does so for any sample,
/// else "decomposed" or "on the host".
///
/// # Errors
/// A sample that the device claims to support but fails to compute.
pub(crate) fn ways(
    device: &Device<AnyBackend>,
    label: impl Fn(&Op) -> String,
) -> Result<BTreeMap<String, BTreeMap<DType, &'static str>>> {
    let mut ways: BTreeMap<String, BTreeMap<DType, &'static str>> = BTreeMap::new();
    for sample in table::samples() {
        let ways = ways.entry(label(&sample.op)).or_default();
        for &dtype in device
            .capabilities()
            .dtypes
            .iter()
            .filter(|dtype| sample.tests(**dtype))
        {
            let first = sample.first(dtype);
            if ways.get(&first) != Some(&"native")
                && let Some(way) = judge::how(&sample, dtype, device.inner())?
            {
                ways.insert(first, way);
            }
        }
    }
    Ok(ways)
}

/// The cases of every op for a device with these dtypes. A sample's numbers depend on its op, and on its place among
/// that op's samples: a new sample leaves the numbers of all other ops as they are.
pub(crate) fn cases(dtypes: &[DType]) -> Vec<Case> {
    let mut places: BTreeMap<&str, u64> = BTreeMap::new();
    let seeded = table::samples().into_iter().map(|sample| {
        let name = sample.op.name();
        // FNV-1a, in 24 bits.
        let hash = name.bytes().fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let place = places.entry(name).or_default();
        *place += 1;
        (sample, u64::from(hash >> 8) + *place)
    });
    seeded
        .flat_map(|(sample, seed)| of_sample(sample, seed, dtypes))
        .collect()
}

fn of_sample(sample: Sample, seed: u64, dtypes: &[DType]) -> Vec<Case> {
    let layouts: &[Layout] = if sample.layouts {
        &Layout::ALL
    } else {
        &[Layout::Contiguous]
    };
    let sample = std::sync::Arc::new(sample);
    let mut cases = Vec::new();
    let own = |operand: &sample::Operand| {
        operand
            .fixed_dtype()
            .is_none_or(|dtype| !dtype.is_float() || dtypes.contains(&dtype))
    };
    if !sample.operands.iter().all(own) {
        return cases;
    }
    for &dtype in dtypes.iter().filter(|dtype| sample.tests(**dtype)) {
        for &layout in layouts {
            let repeats = sample
                .operands
                .iter()
                .all(|operand| operand.effective(layout) == Layout::Contiguous);
            if layout != Layout::Contiguous && repeats {
                continue;
            }
            let name = format!("{}/{}/{}", sample.op.name(), sample.detail, layout.name());
            let sample_here = std::sync::Arc::clone(&sample);
            let run = move |device: &Device<AnyBackend>| judge::run(&sample_here, dtype, layout, seed, device);
            cases.push(Case::new(Source::Generated, name, sample.op.name(), dtype, run));
        }
    }
    cases
}
