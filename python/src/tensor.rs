//! The tensor type of Python.

use polygrad::backend::HostTensor;
use polygrad::{DType, Device, Tensor};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};

use crate::dlpack::{self, CPU, no_bf16, numpy};
use crate::errors::raised;

/// An array of up to eight dimensions in the memory of the CPU. It is immutable.
///
/// `polygrad.from_dlpack` makes one. NumPy, PyTorch, JAX and all others that support DLPack accept it and share its
/// memory. Consumers of DLPack 1.0 or newer are told that it is read-only; nothing may write to it.
#[pyclass(name = "Tensor", module = "polygrad", frozen)]
pub(crate) struct PyTensor(pub(crate) Tensor);

/// NumPy's name of a dtype.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
    }
}

/// The CPU.
pub(crate) fn cpu() -> PyResult<Device> {
    Device::new("cpu").map_err(raised)
}

/// A copy in separate memory.
pub(crate) fn copied(memory: &HostTensor) -> polygrad::Result<HostTensor> {
    polygrad::backend::dispatch_dtype!(memory.dtype(), T => HostTensor::new(*memory.shape(), memory.to_vec::<T>()?))
}

/// The tensor of an object, in the object's own memory if possible; otherwise of the array that NumPy makes of it.
pub(crate) fn tensor_of(object: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    if let Ok(tensor) = object.cast::<PyTensor>()
        && copy != Some(true)
    {
        return Ok(tensor.get().0.clone());
    }
    let memory = dlpack::import(object)?.tensor(copy).map_err(raised)?;
    Tensor::from_host(memory, &cpu()?).map_err(raised)
}

/// A tensor of an object that has `__dlpack__` and is in the memory of the CPU: an array of NumPy or JAX, a tensor of
/// PyTorch, and so on.
///
/// It shares the object's memory, which must not be written to while the tensor exists. Objects that are not row-major,
/// or not aligned for their dtype, are copied. With `copy=True` all are copied; with `copy=False` none, and a necessary
/// copy is an error.
///
/// Dtypes: bool, uint8, int32, int64, float16, bfloat16, float32, float64. Other dtypes are an error, and so are
/// tensors on a GPU.
#[pyfunction]
#[pyo3(signature = (x, /, *, copy = None))]
pub(crate) fn from_dlpack(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<PyTensor> {
    if !x.hasattr("__dlpack__")? {
        let text = format!(
            "{} has no __dlpack__; make an array of it first, as by numpy.asarray",
            x.get_type().name()?
        );
        return Err(pyo3::exceptions::PyTypeError::new_err(text));
    }
    tensor_of(x, copy).map(PyTensor)
}

#[pymethods]
impl PyTensor {
    /// The extents, outermost first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.dims())
    }

    /// The number of extents.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.rank()
    }

    /// NumPy's name of the dtype, or "bfloat16".
    #[getter]
    fn dtype(&self) -> &'static str {
        name(self.0.dtype())
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.0.dims().first().copied();
        first.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("a tensor without dimensions has no length"))
    }

    fn __repr__(&self) -> String {
        format!("polygrad.Tensor({}, dtype={})", self.0, name(self.0.dtype()))
    }

    /// (1, 0), which is the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// A DLPack capsule that shares the memory and keeps it alive; with `copy=True` it has a copy, which may be written
    /// to. Consumers of versions before 1.0 are not told that the memory is read-only, as with JAX's arrays.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err(
                "the tensor is on the CPU, where there are no streams: pass stream=None",
            ));
        }
        if let Some((kind, id)) = dl_device
            && (kind, id) != (CPU, 0)
        {
            let text = format!("the tensor is on the CPU, and cannot be exported to the device ({kind}, {id})");
            return Err(PyBufferError::new_err(text));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let own = copy == Some(true);
        let memory = self.0.to_host().map_err(raised)?;
        let memory = if own { copied(&memory).map_err(raised)? } else { memory };
        dlpack::export(py, memory, own, versioned)
    }

    /// A read-only NumPy array that shares the memory.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().0.dtype() == DType::BF16 {
            return Err(raised(no_bf16()));
        }
        numpy(slf.py())?.call_method1("from_dlpack", (slf,))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let settings = [("dtype", dtype)].into_py_dict(py)?;
        settings.set_item("copy", copy)?;
        numpy(py)?.call_method("asarray", (Self::numpy(slf)?,), Some(&settings))
    }
}
