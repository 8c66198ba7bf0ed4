//! Whether rows may be computed together: shown on numbers, before any request is joined with another.

use polygrad_core::{HostTensor, Result, Shape};
use polygrad_onnx::graph::{Dim, ElementType, Literal};

use crate::{Model, Signature, TensorSpec, Value};

/// Extents that are tried where the model leaves them open: models of texts take any, models of pictures need some size.
const EXTENTS: [usize; 3] = [8, 32, 64];

/// What an attempt to show it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Two rows together gave what each gave alone.
    Independent,
    /// They did not.
    Mixed,
    /// The model could not be run on numbers that were made up.
    Unknown,
}

/// Runs `model` on two rows together and on each alone; `signature` says where the rows are.
pub(crate) fn examine(model: &dyn Model, signature: &Signature) -> Rows {
    for extent in EXTENTS {
        if let Ok(rows) = compare(model, signature, extent) {
            return rows;
        }
        let is_open = |spec: &TensorSpec| {
            let dims = spec.dims.iter().enumerate();
            dims.into_iter()
                .any(|(axis, dim)| spec.batch != Some(axis) && !matches!(dim, Dim::Fixed(_)))
        };
        if !signature.inputs.iter().any(is_open) {
            break;
        }
    }
    Rows::Unknown
}

fn compare(model: &dyn Model, signature: &Signature, extent: usize) -> Result<Rows> {
    let both: Vec<Value> = signature
        .inputs
        .iter()
        .map(|spec| made_up(spec, extent))
        .collect::<Result<_>>()?;
    let together = model.run(&both)?;
    for row in 0..2 {
        let own = signature.inputs.iter().zip(&both);
        let own = own.map(|(spec, value)| value.rows(spec.batch.unwrap_or(0), row..row + 1));
        let alone = model.run(&own.collect::<Result<Vec<_>>>()?)?;
        for ((spec, together), alone) in signature.outputs.iter().zip(&together).zip(&alone) {
            let Some(axis) = spec.batch.filter(|&axis| together.shape().get(axis) == Some(&2)) else {
                return Ok(Rows::Mixed);
            };
            if !are_close(&together.rows(axis, row..row + 1)?, alone)? {
                return Ok(Rows::Mixed);
            }
        }
    }
    Ok(Rows::Independent)
}

/// Two rows of an input, which differ; whole numbers are 0 and 1, which every table of embeddings has.
fn made_up(spec: &TensorSpec, extent: usize) -> Result<Value> {
    let extents = spec.dims.iter().enumerate().map(|(axis, dim)| match dim {
        _ if spec.batch == Some(axis) => 2,
        Dim::Fixed(fixed) => *fixed,
        Dim::Named(_) | Dim::Unknown => extent,
    });
    let shape = Shape::new(&extents.collect::<Vec<_>>())?;
    if spec.element == ElementType::String {
        return Value::zeros(spec.element, shape);
    }
    // The fractional parts of multiples of the golden ratio: neither equal nor in any order.
    let fractions = (1..=shape.numel()).map(|i| (i as f64 * 0.618_033_988_749_895).fract());
    let dtype = spec.element.dtype()?;
    let numbers = match dtype.is_float() {
        true => fractions.map(|fraction| 2.0 * fraction - 1.0).collect::<Vec<f64>>(),
        false => fractions.map(|fraction| f64::from(fraction > 0.5)).collect(),
    };
    let host = HostTensor::new(shape, numbers)?.cast(dtype);
    Ok(Value::Tensor(Literal::new(spec.element, host)?))
}

/// Equal but for rounding: sums may be taken in another order for another number of rows.
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
