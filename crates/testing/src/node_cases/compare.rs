//! Comparisons of values with those of a case.

use polygrad_onnx::Value;
use polygrad_onnx::graph::ValueType;
use polygrad_tensor::{Error, Result};

/// Fails unless both have the same shape and element type and are close as by `numpy.testing.assert_allclose`.
pub fn close(found: &Value, wanted: &Value, rtol: f64, atol: f64) -> Result<()> {
    if let (Some(found), Some(wanted)) = (found.as_sequence(), wanted.as_sequence()) {
        if found.len() != wanted.len() {
            return Err(Error::shape(format!("{} values, not {}", found.len(), wanted.len())));
        }
        return found
            .iter()
            .zip(wanted)
            .try_for_each(|(found, wanted)| close(found, wanted, rtol, atol));
    }
    if found.is_absent() && wanted.is_absent() {
        return Ok(());
    }
    let (Some(found_element), Some(wanted_element)) = (found.element(), wanted.element()) else {
        return Err(Error::invalid("values of two kinds"));
    };
    if found_element != wanted_element {
        return Err(Error::dtype(format!("{found_element}, not {wanted_element}")));
    }
    if found.shape() != wanted.shape() {
        return Err(Error::shape(format!(
            "shape {:?}, not {:?}",
            found.shape(),
            wanted.shape()
        )));
    }
    if let (Some(found), Some(wanted)) = (found.texts(), wanted.texts()) {
        return match found == wanted {
            true => Ok(()),
            false => Err(Error::invalid(format!("{found:?}, not {wanted:?}"))),
        };
    }
    let (found, wanted) = (found.host()?.to_f64_vec(), wanted.host()?.to_f64_vec());
    let near = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs();
    let far = |i: &usize| !near(found[*i], wanted[*i]);
    let wrong: Vec<usize> = (0..found.len()).filter(far).collect();
    match wrong.first() {
        None => Ok(()),
        Some(&i) => Err(Error::invalid(format!(
            "{} of {} values differ, the first at {i}: {} instead of {}",
            wrong.len(),
            found.len(),
            found[i],
            wanted[i]
        ))),
    }
}

/// Fails unless a value has the element type that the model declares.
pub fn fits(value: &Value, ty: Option<&ValueType>) -> Result<()> {
    match (value.element(), ty.and_then(ValueType::as_tensor)) {
        (Some(found), Some(ty)) if found != ty.element => Err(Error::dtype(format!("{found}, not {}", ty.element))),
        _ => Ok(()),
    }
}
