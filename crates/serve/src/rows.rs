//! Checks whether rows may be computed together: by following them through the graph, then by running it on numbers,
//! before any request is joined with another.

use polygrad_core::{HostTensor, Result, Shape};
use polygrad_onnx::OnnxModel;
use polygrad_onnx::graph::{Dim, ElementType, Literal};

use crate::{Model, Signature, TensorSpec, Value};

/// Extents to try if the model leaves them open: text models accept any, image models need a minimum size.
const EXTENTS: [usize; 3] = [8, 32, 64];

/// Factors on the numbers of the second row, so that effects above some bound are noticed, too.
const FACTORS: [f64; 4] = [1.0, 300.0, -1e4, 1e-4];

/// Finds out why rows cannot be computed together; `None` if they can. `model` runs `graph`, and `signature` says
/// which axes are rows.
pub(crate) fn kept_apart(graph: &OnnxModel, model: &dyn Model, signature: &Signature) -> Option<String> {
    let is_open = |spec: &TensorSpec| {
        let mut dims = spec.dims.iter().enumerate();
        dims.any(|(axis, dim)| spec.batch != Some(axis) && !matches!(dim, Dim::Fixed(_)))
    };
    let is_open = signature.inputs.iter().any(is_open);
    let mut last = None;
    for &extent in &EXTENTS[..if is_open { EXTENTS.len() } else { 1 }] {
        let found = follow(graph, signature, extent).and_then(|reason| match reason {
            Some(reason) => Ok(Some(reason)),
            None => compare(model, signature, extent),
        });
        match found {
            Ok(None) if is_open => {
                // If the graph also accepts another extent, it must keep rows apart with that one as well. Not every
                // model accepts both.
                return follow(graph, signature, extent * 3 / 2).ok().flatten();
            }
            Ok(reason) => return reason,
            Err(error) => last = Some(error),
        }
    }
    last.map(|error| format!("it cannot be run on numbers that are made up: {error}"))
}

fn follow(graph: &OnnxModel, signature: &Signature, extent: usize) -> Result<Option<String>> {
    let axis = |spec: &TensorSpec| spec.batch.unwrap_or(0);
    // Inputs with a default value are part of the graph.
    let has_rows = |spec: &&TensorSpec| spec.default_value().is_none();
    let inputs: Vec<usize> = signature.inputs.iter().filter(has_rows).map(axis).collect();
    let outputs: Vec<usize> = signature.outputs.iter().map(axis).collect();
    graph.mixes_rows([&inputs, &outputs], |rows| {
        let all = made_up(signature, extent, &vec![1.0; rows])?;
        let given = signature.inputs.iter().zip(all).filter(|(spec, _)| has_rows(spec));
        given.map(|(_, value)| value.into_graph()).collect()
    })
}

/// Runs `model` on two rows together and on each separately.
fn compare(model: &dyn Model, signature: &Signature, extent: usize) -> Result<Option<String>> {
    let mut alone = None;
    for factor in FACTORS {
        let both = made_up(signature, extent, &[1.0, factor])?;
        let together = model.run(&both)?;
        let row = |row: usize| {
            let own = signature.inputs.iter().zip(&both);
            let own = own.map(|(spec, value)| match spec.batch {
                Some(axis) => value.rows(axis, row..row + 1),
                None => Ok(value.clone()),
            });
            model.run(&own.collect::<Result<Vec<_>>>()?)
        };
        if alone.is_none() {
            alone = Some([row(0)?, row(1)?]);
        }
        let others = if factor == 1.0 { 2 } else { 1 };
        for (row, alone) in alone.iter().flatten().take(others).enumerate() {
            for ((spec, together), alone) in signature.outputs.iter().zip(&together).zip(alone) {
                let axis = spec.batch.filter(|&axis| together.shape().get(axis) == Some(&2));
                let is_alike = match axis {
                    Some(axis) => are_close(&together.rows(axis, row..row + 1)?, alone)?,
                    None => false,
                };
                if !is_alike {
                    let name = &spec.name;
                    return Ok(Some(format!(
                        "a row of the output {name:?} was another beside another row"
                    )));
                }
            }
        }
    }
    Ok(None)
}

/// Inputs with a different row for each factor. Integers are 0 and 1, which every embedding table has.
fn made_up(signature: &Signature, extent: usize, factors: &[f64]) -> Result<Vec<Value>> {
    let one = |spec: &TensorSpec| {
        if let Some(value) = spec.default_value() {
            return Ok(value.clone());
        }
        let extents = spec.dims.iter().enumerate().map(|(axis, dim)| match dim {
            _ if spec.batch == Some(axis) => factors.len(),
            Dim::Fixed(fixed) => *fixed,
            Dim::Named(_) | Dim::Unknown => extent,
        });
        let shape = Shape::new(&extents.collect::<Vec<_>>())?;
        if spec.element == ElementType::String {
            return Value::zeros(spec.element, shape);
        }
        let within: usize = shape[spec.batch.map_or(0, |axis| axis + 1)..].iter().product();
        // The fractional parts of multiples of the golden ratio are all different and in no order.
        let fractions = (1..=shape.numel()).map(|i| (i as f64 * 0.618_033_988_749_895).fract());
        let dtype = spec.element.dtype()?;
        let numbers: Vec<f64> = match dtype.is_float() {
            true => {
                let factor = |i: usize| factors[i / within.max(1) % factors.len()];
                fractions
                    .enumerate()
                    .map(|(i, fraction)| (2.0 * fraction - 1.0) * factor(i))
                    .collect()
            }
            false => fractions.map(|fraction| f64::from(fraction > 0.5)).collect(),
        };
        let host = HostTensor::new(shape, numbers)?.cast(dtype);
        Ok(Value::Tensor(Literal::new(spec.element, host)?))
    };
    signature.inputs.iter().map(one).collect()
}

/// Equal except for rounding: sums may be taken in another order for another number of rows.
fn are_close(a: &Value, b: &Value) -> Result<bool> {
    let (Value::Tensor(a), Value::Tensor(b)) = (a, b) else {
        return Ok(matches!((a, b), (Value::Strings(a), Value::Strings(b)) if a.strings() == b.strings()));
    };
    let (a, b) = (a.host(), b.host());
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return Ok(false);
    }
    let tolerance = match a.dtype() {
        dtype if !dtype.is_float() => 0.0,
        dtype if dtype.size() == 2 => 2e-2,
        _ => 1e-3,
    };
    let is_close =
        |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * (1.0 + b.abs());
    Ok(a.to_f64_vec().iter().zip(&b.to_f64_vec()).all(is_close))
}
