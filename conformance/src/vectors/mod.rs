//! Reference vectors: PyTorch's own results and gradients, from the sets in this crate or from any folder.

mod adapter;
mod call;
mod check;
mod grad;
mod large;
mod proof;
mod rounding;
mod set;
mod slopes;
mod specials;
mod zeros;

use std::path::Path;
use std::sync::Arc;

use polygrad_core::{DType, Result};
use polygrad_tensor::{AnyBackend, Device};

use crate::case::{Case, Outcome, Source};
use crate::differences::Difference;
pub(crate) use set::VectorSet;
pub use zeros::{Blind, blind};

/// The differences of a device's results from PyTorch's for NaN, infinities, and tensors without elements: for every op
/// and layer recorded in the set in `folder`, forward and gradient, in f64 and f32. `scripts/make_special_vectors.py`
/// writes the set.
///
/// # Errors
/// If the files are missing or malformed.
pub fn specials(folder: &Path, device: &Device) -> Result<Vec<Difference>> {
    Ok(specials::differences(&VectorSet::read(folder)?, device))
}

/// The sets that come with this crate, recorded by `scripts/make_*_vectors.py`: ops, then layers and losses, recurrent
/// layers, transformers, models of language, models for images, optimizers; and numbers at edges, which those leave
/// out.
///
/// # Errors
/// If the files are malformed.
pub(crate) fn built_in() -> Result<Vec<Arc<VectorSet>>> {
    macro_rules! set {
        ($folder:literal) => {{
            let manifest = include_bytes!(concat!("../../data/", $folder, "/manifest.json"));
            let tensors = include_bytes!(concat!("../../data/", $folder, "/tensors.safetensors"));
            VectorSet::parse(
                (concat!("data/", $folder, "/manifest.json"), manifest),
                (concat!("data/", $folder, "/tensors.safetensors"), tensors),
            )
            .map(Arc::new)
        }};
    }
    Ok(vec![
        set!("ops")?,
        set!("modules")?,
        set!("recurrent")?,
        set!("transformer")?,
        set!("language")?,
        set!("vision")?,
        set!("optimizers")?,
        set!("edges")?,
        large::set().map(Arc::new)?,
    ])
}

/// The set in a folder.
///
/// # Errors
/// A file that is missing or malformed; the error names the file and the position.
pub(crate) fn folder(folder: &Path) -> Result<Arc<VectorSet>> {
    VectorSet::read(folder).map(Arc::new)
}

/// The cases that PyTorch recorded, in every float dtype: values and gradients, or only the gradients of the cases that
/// have any.
pub(crate) fn recorded(set: &Arc<VectorSet>, dtypes: &[DType], gradients_alone: bool) -> Vec<Case> {
    let wanted = |i: &usize| !gradients_alone || matches!(check::wants_gradients(set, &set.cases[*i]), Ok(true));
    let chosen: Vec<usize> = (0..set.cases.len()).filter(wanted).collect();
    let floats = dtypes.iter().copied().filter(|dtype| dtype.is_float());
    let pairs = floats.flat_map(|dtype| chosen.iter().map(move |&i| (dtype, i)));
    pairs
        .map(|(dtype, i)| {
            let vector = &set.cases[i];
            let set = Arc::clone(set);
            let run = move |device: &Device<AnyBackend>| {
                let outcome = check::run(&set, &set.cases[i], dtype, device);
                match outcome.gradient {
                    Some(gradient) if gradients_alone => Outcome::gradient(gradient),
                    _ => outcome,
                }
            };
            Case::new(Source::Vectors, vector.k.clone(), vector.op.clone(), dtype, run)
        })
        .collect()
}

/// The recorded cases compared with differences of values, in f64.
pub(crate) fn differences(set: &Arc<VectorSet>) -> Vec<Case> {
    grad::cases(set)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use polygrad_core::{HostTensor, Shape};
    use serde_json::{Value, json};

    use super::*;
    use crate::case::Status;

    fn judged(op: &str, input: &[usize], kwargs: &Value) -> Status {
        let shape = Shape::new(input).unwrap();
        let host = HostTensor::new(shape, vec![0.5; shape.numel()]).unwrap();
        let vector = set::Vector {
            k: "case/0".to_owned(),
            op: op.to_owned(),
            variant: String::new(),
            args: vec![json!({"t": "x"}); if op == "nn.MultiheadAttention" { 3 } else { 1 }],
            kwargs: kwargs.as_object().unwrap().clone(),
            outputs: 1,
            special: String::new(),
            refused: false,
        };
        let set = Arc::new(VectorSet::new(vec![vector], BTreeMap::from([("x".to_owned(), host)])));
        let cases = recorded(&set, &[DType::F64], false);
        cases[0].run(&crate::reference()).forward.unwrap()
    }

    #[test]
    fn what_is_not_offered_is_unsupported_and_named() {
        let cases: &[(&str, &[usize], Value, &str)] = &[
            (
                "nn.LSTM",
                &[4, 2, 3],
                json!({"input_size": 3, "hidden_size": 4, "proj_size": 2}),
                "proj_size",
            ),
            (
                "nn.Embedding",
                &[4],
                json!({"num_embeddings": 3, "embedding_dim": 2, "max_norm": 1.0}),
                "max_norm",
            ),
        ];
        for (op, input, kwargs, argument) in cases {
            let status = judged(op, input, kwargs);
            let named =
                matches!(&status, Status::Unsupported(reason) if reason.contains(&format!("argument {argument}")));
            assert!(named, "{op}: {status:?}");
        }
        let offered = json!({"kernel_size": 2, "return_indices": false});
        assert!(matches!(
            judged("nn.MaxPool2d", &[1, 2, 5, 5], &offered),
            Status::Fail(_)
        ));
    }
}
