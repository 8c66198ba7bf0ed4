//! NumPy's own arrays: their memory in one attribute, `__array_struct__`, where DLPack takes three calls and a capsule;
//! and new arrays.
//!
//! Source of the layout: `PyArrayInterface` of [NumPy's array
//! interface](https://numpy.org/doc/stable/reference/arrays.interface.html), version 3.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

use polygrad::DType;
use polygrad::backend::HostTensor;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

/// The flag of memory in the machine's order of bytes.
const NATIVE: c_int = 0x200;

#[repr(C)]
struct Interface {
    /// Always 2.
    two: c_int,
    rank: c_int,
    /// Such as `f`.
    kind: c_char,
    /// In bytes.
    size: c_int,
    flags: c_int,
    shape: *mut isize,
    /// In bytes.
    strides: *mut isize,
    data: *mut c_void,
    fields: *mut ffi::PyObject,
}

/// A NumPy array's memory and layout.
pub(crate) struct Array {
    /// A capsule that keeps the array alive.
    pub(crate) owner: Py<PyAny>,
    pub(crate) dtype: DType,
    pub(crate) data: *mut u8,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<isize>,
}

impl Array {
    /// The memory of an object that is exactly a `numpy.ndarray`. `None` for other objects, and for arrays whose dtype
    /// we do not have, or whose strides are no whole elements.
    ///
    /// # Errors
    /// If NumPy is not installed, or there is no memory for the capsule.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = object.py();
        if !object.is_exact_instance(CLASS.import(py, "numpy", "ndarray")?) {
            return Ok(None);
        }
        let owner = object.getattr(pyo3::intern!(py, "__array_struct__"))?;
        // SAFETY: the object is alive and the interpreter attached. A capsule without a name is NumPy's, since the
        // object's class is NumPy's own.
        let found = unsafe { ffi::PyCapsule_GetPointer(owner.as_ptr(), std::ptr::null()) };
        let Some(found) = NonNull::new(found.cast::<Interface>()) else {
            return Err(PyErr::fetch(py));
        };
        // SAFETY: the structure lives as long as its capsule.
        let found = unsafe { found.as_ref() };
        let Some(dtype) = dtype(found).filter(|_| found.two == 2 && found.flags & NATIVE != 0) else {
            return Ok(None);
        };
        let rank = usize::try_from(found.rank).unwrap_or(0);
        let numbers = |at: *const isize| match rank {
            0 => &[][..],
            // SAFETY: there are as many extents and strides as axes, and they live as long as the structure.
            _ => unsafe { std::slice::from_raw_parts(at, rank) },
        };
        let size = dtype.size().cast_signed();
        if numbers(found.strides).iter().any(|stride| stride % size != 0) {
            return Ok(None);
        }
        Ok(Some(Self {
            dtype,
            data: found.data.cast(),
            // NumPy's extents are not negative.
            shape: numbers(found.shape)
                .iter()
                .map(|extent| extent.cast_unsigned())
                .collect(),
            strides: numbers(found.strides).iter().map(|stride| stride / size).collect(),
            owner: owner.unbind(),
        }))
    }
}

fn dtype(found: &Interface) -> Option<DType> {
    Some(match (found.kind as u8, found.size) {
        (b'b', 1) => DType::Bool,
        (b'u', 1) => DType::U8,
        (b'i', 4) => DType::I32,
        (b'i', 8) => DType::I64,
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        _ => return None,
    })
}

/// A new NumPy array with a copy of this memory.
///
/// # Errors
/// Those of NumPy, for example if it is not installed; for bf16, which it does not have.
pub(crate) fn array_of<'py>(py: Python<'py>, memory: &HostTensor) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if memory.dtype() == DType::BF16 {
        return Err(crate::errors::raised(crate::dlpack::no_bf16()));
    }
    let shape = PyTuple::new(py, memory.shape().dims())?;
    let made = EMPTY
        .import(py, "numpy", "empty")?
        .call1((shape, crate::tensor::name(memory.dtype())))?;
    let bytes = memory.bytes();
    let array = Array::of(&made)?.filter(|array| array.dtype == memory.dtype() && array.shape == memory.shape().dims());
    let Some(array) = array else {
        return Err(pyo3::exceptions::PyTypeError::new_err(
            "numpy.empty has made something else than was asked for",
        ));
    };
    // SAFETY: the array is new, so that nothing else refers to its memory, which `array` keeps alive; it has this dtype
    // and shape, so that it takes as many bytes, one row after another.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), array.data, bytes.len()) };
    Ok(made)
}
