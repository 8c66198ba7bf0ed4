//! Models that run.

use std::path::PathBuf;

use polygrad::Tensor;
use polygrad::onnx::graph::ValueType;
use polygrad::onnx::{OnnxModel, Options, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyTuple};

use crate::dlpack::owned_array;
use crate::errors::raised;
use crate::tensor::{copied, cpu, tensor_of};

/// A trained model that answers.
#[pyclass(module = "polygrad", frozen)]
pub(crate) struct Model(OnnxModel);

#[pymethods]
impl Model {
    /// Loads an ONNX file, or the folder that `polygrad train` has left.
    ///
    /// What a policy of `polygrad.rl.train` has left is loaded by `polygrad.rl.Policy.load`.
    #[staticmethod]
    #[pyo3(signature = (path, /))]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let device = cpu()?;
        let load = || match path.is_dir() {
            true => {
                crate::rl::refuse_run(&path)?;
                OnnxModel::from_graph(&polygrad_cli::run_graph(&path)?, &device, Options::default())
            }
            false => OnnxModel::load(&path, &device),
        };
        py.detach(load).map(Self).map_err(raised)
    }

    /// Names of the inputs that `run` needs, in order.
    #[getter]
    fn input_names(&self) -> Vec<&str> {
        self.0.inputs().map(|(name, _)| name).collect()
    }

    /// Names of the inputs that may be left out.
    #[getter]
    fn optional_input_names(&self) -> Vec<&str> {
        self.0.optional_inputs().map(|(name, ..)| name).collect()
    }

    /// Names of the outputs, in order.
    #[getter]
    fn output_names(&self) -> Vec<&str> {
        self.0.outputs().map(|(name, _)| name).collect()
    }

    /// What the file says of itself, texts by name.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        self.0
            .header()
            .metadata
            .iter()
            .try_for_each(|(key, value)| found.set_item(key, value))?;
        Ok(found)
    }

    fn __repr__(&self) -> String {
        let typed = |(name, ty): (&str, Option<&ValueType>)| match ty.and_then(ValueType::as_tensor) {
            Some(ty) => format!("{name}: {ty}"),
            None => name.to_owned(),
        };
        let all = |values: Vec<String>| values.join(", ");
        let (inputs, outputs) = (
            all(self.0.inputs().map(typed).collect()),
            all(self.0.outputs().map(typed).collect()),
        );
        format!("polygrad.Model({inputs} -> {outputs})")
    }

    /// Runs the model, and gives arrays of NumPy by the names of the outputs.
    ///
    /// `inputs` are arrays by name, or a tuple or list of them in the order of `input_names`, or for a model of one
    /// input the array. An array is whatever has `__dlpack__` in the memory of the CPU, or NumPy makes one of; it is
    /// read where it lies, while other threads of Python go on, and must not be written to meanwhile. Its dtype is that
    /// which the model says.
    #[pyo3(signature = (inputs, /))]
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let given = self.given(inputs)?;
        let run = || {
            let outputs = self
                .0
                .run(given.into_iter().map(|(name, tensor)| (name, Value::from(tensor))))?;
            let hosts = outputs.iter().map(|(name, value)| {
                let memory = value.host().and_then(|memory| copied(&memory));
                Ok((
                    name.to_owned(),
                    memory.map_err(|error| error.in_module(format!("output {name:?}")))?,
                ))
            });
            hosts.collect::<polygrad::Result<Vec<_>>>()
        };
        let found = PyDict::new(py);
        for (name, memory) in py.detach(run).map_err(raised)? {
            found.set_item(name, owned_array(py, memory)?)?;
        }
        Ok(found)
    }
}

impl Model {
    fn given(&self, inputs: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Tensor)>> {
        let named = |name: String, value: &Bound<'_, PyAny>| -> PyResult<(String, Tensor)> {
            let tensor = tensor_of(value, None).map_err(|error| noted(value.py(), error, &name));
            Ok((name, tensor?))
        };
        if let Ok(inputs) = inputs.cast::<PyMapping>() {
            let items = inputs.items()?;
            return items
                .iter()
                .map(|item| {
                    let (name, value): (String, Bound<'_, PyAny>) = item.extract()?;
                    named(name, &value)
                })
                .collect();
        }
        let several = inputs.is_instance_of::<PyList>() || inputs.is_instance_of::<PyTuple>();
        let values: Vec<Bound<'_, PyAny>> = match several {
            true => inputs.try_iter()?.collect::<PyResult<_>>()?,
            false => vec![inputs.clone()],
        };
        let names = self.input_names();
        if values.len() != names.len() {
            let text = format!(
                "{} inputs, but the model takes {}: {}",
                values.len(),
                names.len(),
                names.join(", ")
            );
            return Err(PyTypeError::new_err(text));
        }
        names
            .iter()
            .zip(&values)
            .map(|(name, value)| named((*name).to_owned(), value))
            .collect()
    }
}

/// An exception about an input, with its name as a note where Python has notes.
fn noted(py: Python<'_>, error: PyErr, name: &str) -> PyErr {
    let _ = error
        .value(py)
        .call_method1("add_note", (format!("of the input {name:?}"),));
    error
}
