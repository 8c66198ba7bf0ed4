//! Gymnasium's spaces, and arrays of their values.

use polygrad::backend::HostTensor;
use polygrad::rl::Space;
use polygrad::{DType, Shape};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use crate::arrays::array_of;
use crate::dlpack::{self, View, numpy};
use crate::errors::raised;

/// Converts a space of Gymnasium to ours.
pub(super) fn space_of(space: &Bound<'_, PyAny>, what: &str) -> PyResult<Space> {
    let kind = space.get_type().name()?.to_string();
    let attribute = |name: &str| space.getattr(name);
    let whole = |name: &str| attribute(name)?.call_method0("ravel")?.call_method0("tolist");
    let found = match kind.as_str() {
        "Discrete" => Space::Discrete {
            n: attribute("n")?.extract()?,
            start: attribute("start")?.extract()?,
        },
        "MultiDiscrete" | "MultiBinary" if attribute("shape")?.len()? != 1 => {
            return Err(PyTypeError::new_err(format!(
                "the {what} is a {kind} of shape {}, and policies are for those of one axis; flatten it in a wrapper",
                attribute("shape")?
            )));
        }
        "MultiDiscrete" => Space::MultiDiscrete {
            nvec: whole("nvec")?.extract()?,
            start: whole("start")?.extract()?,
        },
        "MultiBinary" => Space::MultiBinary {
            n: attribute("shape")?.get_item(0)?.extract()?,
        },
        "Box" => {
            let shape: Vec<usize> = attribute("shape")?.extract()?;
            let dtype = attribute("dtype")?.str()?.to_string();
            let known = DType::ALL
                .into_iter()
                .find(|dtype_| crate::tensor::name(*dtype_) == dtype);
            Space::Box {
                low: whole("low")?.extract()?,
                high: whole("high")?.extract()?,
                shape,
                // For other dtypes, it only matters whether there are fractions.
                dtype: known.unwrap_or(if dtype.contains("int") { DType::I64 } else { DType::F32 }),
            }
        }
        _ => {
            return Err(PyTypeError::new_err(format!(
                "the {what} is a {kind}, and policies are for Box, Discrete, MultiDiscrete and MultiBinary; wrap the \
                 environments, as by gymnasium.wrappers.vector.FlattenObservation"
            )));
        }
    };
    found.check().map_err(raised)?;
    Ok(found)
}

/// The shape of a value.
pub(super) fn shape_of(space: &Space) -> Vec<usize> {
    match space {
        Space::Discrete { .. } => Vec::new(),
        Space::Box { shape, .. } => shape.clone(),
        Space::MultiDiscrete { .. } | Space::MultiBinary { .. } => vec![space.len()],
    }
}

/// Numbers of an array, of any dtype of NumPy.
pub(super) fn array(object: &Bound<'_, PyAny>) -> PyResult<View> {
    dlpack::import(object).or_else(|error| {
        if dlpack::is_masked(object)? {
            return Err(error);
        }
        // The dtype is unsupported, or the memory is elsewhere.
        let settings = [("dtype", "float64")].into_py_dict(object.py())?;
        dlpack::import(&numpy(object.py())?.call_method("asarray", (object,), Some(&settings))?)
    })
}

/// Reads an array of this shape, in which extents of 1 may be left out or added.
pub(super) fn read(object: &Bound<'_, PyAny>, what: &str, shape: &[usize], out: &mut [f32]) -> PyResult<()> {
    let view = array(object)?;
    let long = |extents: &[usize]| {
        extents
            .iter()
            .copied()
            .filter(|&extent| extent != 1)
            .collect::<Vec<_>>()
    };
    if view.shape() != shape && long(view.shape()) != long(shape) {
        let text = format!(
            "{what} are an array of shape {:?}, and {shape:?} is expected",
            view.shape()
        );
        return Err(PyValueError::new_err(text));
    }
    view.write_f32(out);
    Ok(())
}

/// Values of a space as an array, of shape `rows` followed by that of a value, in the dtype of the space.
pub(super) fn values<'py>(
    py: Python<'py>,
    space: &Space,
    rows: &[usize],
    numbers: &[f32],
) -> PyResult<Bound<'py, PyAny>> {
    let whole = || numbers.iter().map(|x| x.round_ties_even()).collect::<Vec<_>>();
    let memory = Shape::new(&[rows, &shape_of(space)].concat()).and_then(|shape| match space {
        Space::Discrete { .. } | Space::MultiDiscrete { .. } | Space::MultiBinary { .. } => {
            Ok(HostTensor::new(shape, whole())?.cast(DType::I64))
        }
        // The nearest integers, as environments in other processes get.
        Space::Box { dtype, .. } if !dtype.is_float() => Ok(HostTensor::new(shape, whole())?.cast(*dtype)),
        Space::Box { dtype, .. } => Ok(HostTensor::new(shape, numbers.to_vec())?.cast(*dtype)),
    });
    array_of(py, &memory.map_err(raised)?)
}
