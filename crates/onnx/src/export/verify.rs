//! Comparison of the written graph with the model.

use polygrad_core::{DType, Distribution, Error, ErrorKind, HostTensor, RandomKey, Result, Shape, random_host};
use polygrad_tensor::{Device, Tensor};

use super::Export;
use crate::graph::{Dim, Graph};
use crate::{OnnxModel, Options};

/// The largest allowed difference of outputs, relative to the largest value.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-2,
        DType::BF16 => 5e-2,
        _ => 1e-5,
    }
}

/// Runs both on random inputs, at two sizes of each symbol.
///
/// # Errors
/// When they differ; the error says by how much.
pub(super) fn verify(
    export: &Export,
    graph: &Graph,
    device: &Device,
    forward: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<()> {
    let model = OnnxModel::from_graph(graph, device, Options::default())?;
    let names: Vec<&str> = model.outputs().map(|(name, _)| name).collect();
    for round in 0..2 {
        let (inputs, sizes) = inputs(export, device, round)?;
        let at = |e: Error| {
            e.with_op("checking the export").with_hint(format!(
                "it ran with {sizes}; Export::bound says how small and how large extents may be"
            ))
        };
        let expected = forward(&inputs).map_err(at)?;
        let outputs = model.forward(&inputs).map_err(at)?;
        for (i, (expected, name)) in expected.iter().zip(&names).enumerate() {
            let (expected, found) = (expected.to_host()?, outputs.tensor(i)?.to_host()?);
            compare(name, &expected, &found).map_err(at)?;
        }
    }
    Ok(())
}

/// Random inputs, and a description of their sizes.
fn inputs(export: &Export, device: &Device, round: u64) -> Result<(Vec<Tensor>, String)> {
    let symbols = export.symbols();
    let size = |i: usize, name: &str| {
        let range = export.range(name);
        // Different symbols have different sizes if their ranges allow it.
        let size = (*range.start()).max(2) + i + 3 * round as usize;
        size.min(*range.end())
    };
    let sizes: Vec<(String, usize)> = symbols
        .iter()
        .enumerate()
        .map(|(i, name)| (name.clone(), size(i, name)))
        .collect();
    let mut tensors = Vec::new();
    for (i, input) in export.inputs.iter().enumerate() {
        let extent = |dim: &Dim| match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Named(name) => sizes
                .iter()
                .find(|(known, _)| known == name)
                .map_or(1, |(_, size)| *size),
            Dim::Unknown => 1,
        };
        let shape = Shape::new(&input.dims.iter().map(extent).collect::<Vec<_>>())?;
        let key = RandomKey {
            seed: 17 + i as u64,
            offset: round << 32,
        };
        let host = if input.dtype.is_float() {
            let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
            random_host(shape, normal, input.dtype, key)?
        } else {
            let high = if input.dtype == DType::Bool {
                2
            } else {
                input.below.max(1)
            };
            random_host(shape, Distribution::Integers { low: 0, high }, DType::I64, key)?.cast(input.dtype)
        };
        tensors.push(Tensor::from_host(host, device)?);
    }
    let words: Vec<String> = sizes.iter().map(|(name, size)| format!("{name} = {size}")).collect();
    let words = if words.is_empty() {
        "fixed extents".to_owned()
    } else {
        words.join(", ")
    };
    Ok((tensors, words))
}

fn compare(name: &str, expected: &HostTensor, found: &HostTensor) -> Result<()> {
    let differs = |what: String| {
        Error::new(
            ErrorKind::Unsupported,
            format!("output {name:?} of the written graph {what}"),
        )
    };
    if expected.shape() != found.shape() || expected.dtype() != found.dtype() {
        return Err(differs(format!(
            "is {}{}, the model's is {}{}",
            found.dtype(),
            found.shape(),
            expected.dtype(),
            expected.shape()
        )));
    }
    let (a, b) = (expected.to_f64_vec(), found.to_f64_vec());
    let largest = a
        .iter()
        .filter(|x| x.is_finite())
        .fold(0f64, |largest, x| largest.max(x.abs()));
    let apart = |(x, y): (&f64, &f64)| match (x - y).abs() {
        _ if x == y || x.is_nan() && y.is_nan() => 0.0,
        difference if difference.is_nan() => f64::INFINITY,
        difference => difference,
    };
    let difference = a.iter().zip(&b).map(apart).fold(0f64, f64::max);
    if difference > tolerance(expected.dtype()) * largest {
        return Err(differs(format!(
            "differs from the model's by {difference:.3e}, where the largest value is {largest:.3e}"
        )));
    }
    Ok(())
}
