//! Gymnasium's spaces, and arrays of their values.

use polygrad::backend::HostTensor;
use polygrad::rl::Space;
use polygrad::{DType, Shape};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use crate::dlpack::{self, View, numpy, owned_array};
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
        "MultiDiscrete" => Space::MultiDiscrete {
            nvec: whole("nvec")?.extract()?,
            start: whole("start")?.extract()?,
        },
        "MultiBinary" => Space::MultiBinary {
            n: attribute("n")?.extract()?,
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

/// Numbers of an array, of any dtype of NumPy.
pub(super) fn array(object: &Bound<'_, PyAny>) -> PyResult<View> {
    let imported = match object.hasattr("__dlpack__")? {
        true => dlpack::import(object),
        false => dlpack::import(&numpy(object.py())?.call_method1("asarray", (object,))?),
    };
    imported.or_else(|_| {
        // The dtype is unsupported, or the memory is elsewhere.
        let settings = [("dtype", "float64")].into_py_dict(object.py())?;
        dlpack::import(&numpy(object.py())?.call_method("asarray", (object,), Some(&settings))?)
    })
}

/// Reads an array with as many numbers as `out`.
pub(super) fn read(object: &Bound<'_, PyAny>, what: &str, out: &mut [f32]) -> PyResult<()> {
    let view = array(object)?;
    let numbers: usize = view.shape().iter().product();
    if numbers != out.len() {
        let text = format!(
            "{what} are an array of shape {:?}, and {} numbers are expected",
            view.shape(),
            out.len()
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
    let whole = || numbers.iter().map(|&x| x as i64).collect::<Vec<_>>();
    let shaped = |own: &[usize]| Shape::new(&[rows, own].concat());
    let memory = match space {
        Space::Discrete { .. } => shaped(&[]).and_then(|shape| HostTensor::new(shape, whole())),
        Space::MultiDiscrete { .. } | Space::MultiBinary { .. } => {
            shaped(&[space.len()]).and_then(|shape| HostTensor::new(shape, whole()))
        }
        Space::Box { shape, dtype, .. } => {
            let memory = shaped(shape).and_then(|shape| HostTensor::new(shape, numbers.to_vec()));
            memory.map(|memory| memory.cast(*dtype))
        }
    };
    owned_array(py, memory.map_err(raised)?)
}
