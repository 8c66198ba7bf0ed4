//! Generated cases: every op in every dtype and layout, against the reference backend in f64.

mod fill;
mod judge;
mod perf;
#[cfg(feature = "harness")]
mod random;
mod sample;
#[cfg(test)]
mod shapes;
mod table;

use polygrad_core::{DType, Op};
use polygrad_tensor::{AnyBackend, Device};

use crate::case::{Case, Source};
use sample::{Layout, Sample};

pub use perf::{Timing, perf};
#[cfg(feature = "harness")]
pub(crate) use random::FAMILIES;

/// Every op that there is a case of.
pub(crate) fn ops() -> impl Iterator<Item = Op> {
    table::samples().into_iter().map(|sample| sample.op)
}

/// The cases of every op for a device that has these dtypes.
pub(crate) fn cases(dtypes: &[DType]) -> Vec<Case> {
    let samples = table::samples().into_iter().enumerate();
    samples
        .flat_map(|(i, sample)| of_sample(sample, i as u64, dtypes))
        .collect()
}

fn of_sample(sample: Sample, seed: u64, dtypes: &[DType]) -> Vec<Case> {
    let layouts: &[Layout] = if sample.layouts {
        &Layout::ALL
    } else {
        &[Layout::Contiguous]
    };
    let sample = std::sync::Arc::new(sample);
    let tested = |dtype: &&DType| {
        let first = sample
            .operands
            .first()
            .map_or(**dtype, |operand| operand.dtype(**dtype));
        (sample.only.is_empty() || sample.only.contains(dtype)) && sample.op.accepts(first)
    };
    let mut cases = Vec::new();
    for &dtype in dtypes.iter().filter(tested) {
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
