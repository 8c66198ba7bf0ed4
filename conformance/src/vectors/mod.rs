//! Reference vectors: PyTorch's own answers and gradients, from the set that comes with this crate or from any folder.

mod adapter;
mod call;
mod check;
mod set;

use std::path::Path;
use std::sync::Arc;

use polygrad_core::{DType, Result};
use polygrad_tensor::{AnyBackend, Device};

use crate::case::{Case, Source};
use crate::known::known;
use set::VectorSet;

/// The set that comes with this crate, recorded by `scripts/make_op_vectors.py`, in every float dtype of a device.
///
/// # Errors
/// The files are malformed.
pub(crate) fn built_in(dtypes: &[DType]) -> Result<Vec<Case>> {
    let set = VectorSet::parse(
        ("data/ops/manifest.json", include_bytes!("../../data/ops/manifest.json")),
        (
            "data/ops/tensors.safetensors",
            include_bytes!("../../data/ops/tensors.safetensors"),
        ),
    )?;
    let mut cases = cases(set, dtypes);
    for case in &mut cases {
        case.known = known(case.name());
    }
    Ok(cases)
}

/// The set in a folder, in every float dtype of a device.
///
/// # Errors
/// A file that is missing or malformed; the error names file and place.
pub(crate) fn folder(folder: &Path, dtypes: &[DType]) -> Result<Vec<Case>> {
    Ok(cases(VectorSet::read(folder)?, dtypes))
}

fn cases(set: VectorSet, dtypes: &[DType]) -> Vec<Case> {
    let set = Arc::new(set);
    let floats = dtypes.iter().copied().filter(|dtype| dtype.is_float());
    let mut cases = Vec::new();
    for dtype in floats {
        cases.extend(set.cases.iter().enumerate().map(|(i, vector)| {
            let shared = Arc::clone(&set);
            let run = move |device: &Device<AnyBackend>| check::run(&shared, &shared.cases[i], dtype, device);
            Case::new(Source::Vectors, vector.k.clone(), vector.op.clone(), dtype, run)
        }));
    }
    cases
}
