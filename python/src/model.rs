//! Models that run, and learn.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use polygrad::nn::{Module, StateDict};
use polygrad::onnx::graph::{Graph, ValueType};
use polygrad::onnx::{OnnxModel, Options, Value};
use polygrad::{Device, Error, Result, Tensor, manual_seed};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyTuple};

use crate::dlpack::owned_array;
use crate::errors::raised;
use crate::network::{Network, NetworkConfig, Origin};
use crate::tensor::{copied, cpu, tensor_of};
use crate::training;

/// A model: what `polygrad.Model` is made of.
#[pyclass(module = "polygrad", frozen)]
pub(crate) struct Model(RwLock<Arc<State>>);

/// A model as it is between two trainings.
struct State {
    running: Arc<OnnxModel>,
    /// What runs, as a file would have it.
    graph: Graph,
    origin: Origin,
}

impl State {
    fn new(origin: Origin, graph: Graph, device: &Device) -> Result<Self> {
        Ok(Self {
            running: Arc::new(OnnxModel::from_graph(&graph, device, Options::default())?),
            graph,
            origin,
        })
    }

    fn load(path: &Path, device: &Device) -> Result<Self> {
        if !path.is_dir() {
            let graph = Graph::load(path)?;
            let loaded = Self::new(Origin::Graph, graph, device);
            return loaded.map_err(|error| error.in_module(path.display().to_string()));
        }
        let (origin, graph) = match crate::rl::task(path)?.as_deref() {
            Some(training::TASK) => training::load(path, device)?,
            Some(crate::rl::TASK) => return Err(crate::rl::refused(path)),
            _ => (Origin::Graph, polygrad_cli::run_graph(path)?),
        };
        Self::new(origin, graph, device)
    }

    /// The model as what learns, to read or to change its weights.
    fn network(&self, device: &Device) -> Result<Network> {
        Network::of(&self.origin, &self.graph, device)
    }
}

impl Model {
    fn made(state: State) -> Self {
        Self(RwLock::new(Arc::new(state)))
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, state: State) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }
}

#[pymethods]
impl Model {
    #[staticmethod]
    #[pyo3(signature = (path, /))]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let device = cpu()?;
        py.detach(|| State::load(&path, &device))
            .map(Self::made)
            .map_err(raised)
    }

    /// A network with new weights; `config` is JSON.
    #[staticmethod]
    #[pyo3(signature = (config, seed, /))]
    fn build(py: Python<'_>, config: &str, seed: u64) -> PyResult<Self> {
        let device = cpu()?;
        let build = || {
            let config: NetworkConfig = serde_json::from_str(config)
                .map_err(|error| Error::invalid(format!("a size or an option of the network is wrong: {error}")))?;
            manual_seed(seed);
            let (origin, graph) = Network::new(config, &device)?.finished(&Graph::default())?;
            State::new(origin, graph, &device)
        };
        py.detach(build).map(Self::made).map_err(raised)
    }

    /// Trains it; gives how that went.
    #[pyo3(signature = (order, /))]
    fn fit<'py>(&self, py: Python<'py>, order: training::Order<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state();
        let fitted = training::fit(py, order, &state.running, &state.origin, &state.graph)?;
        let told = fitted.told(py)?;
        let device = cpu()?;
        let state = py
            .detach(|| State::new(fitted.origin, fitted.graph, &device))
            .map_err(raised)?;
        self.replace(state);
        Ok(told)
    }

    #[pyo3(signature = (settings, data, /))]
    fn evaluate<'py>(&self, py: Python<'py>, settings: &str, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        training::evaluate(py, settings, data, &self.state().running)
    }

    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (state, device) = (self.state(), cpu()?);
        let weights = py.detach(|| state.network(&device)?.state_dict()).map_err(raised)?;
        let found = PyDict::new(py);
        for (name, memory) in weights.iter() {
            found.set_item(name, owned_array(py, copied(memory).map_err(raised)?)?)?;
        }
        Ok(found)
    }

    #[pyo3(signature = (weights, /))]
    fn load_state_dict(&self, py: Python<'_>, weights: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut given = StateDict::new();
        for (name, value) in weights {
            let name: String = name.extract()?;
            let tensor = tensor_of(&value, None).map_err(|error| noted(py, error, &name))?;
            given.insert(name, tensor.to_host().map_err(raised)?);
        }
        let (state, device) = (self.state(), cpu()?);
        let load = || {
            let network = state.network(&device)?;
            network.load_state_dict(&given, true)?;
            let (origin, graph) = network.finished(&state.graph)?;
            State::new(origin, graph, &device)
        };
        self.replace(py.detach(load).map_err(raised)?);
        Ok(())
    }

    /// Names of the inputs that `run` needs, in order.
    #[getter]
    fn input_names(&self) -> Vec<String> {
        let state = self.state();
        state.running.inputs().map(|(name, _)| name.to_owned()).collect()
    }

    /// Names of the inputs that may be left out.
    #[getter]
    fn optional_input_names(&self) -> Vec<String> {
        let state = self.state();
        state
            .running
            .optional_inputs()
            .map(|(name, ..)| name.to_owned())
            .collect()
    }

    /// Names of the outputs, in order.
    #[getter]
    fn output_names(&self) -> Vec<String> {
        let state = self.state();
        state.running.outputs().map(|(name, _)| name.to_owned()).collect()
    }

    /// What the file says of itself, texts by name.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        let state = self.state();
        let mut metadata = state.running.header().metadata.iter();
        metadata.try_for_each(|(key, value)| found.set_item(key, value))?;
        Ok(found)
    }

    fn __repr__(&self) -> String {
        let state = self.state();
        let typed = |(name, ty): (&str, Option<&ValueType>)| match ty.and_then(ValueType::as_tensor) {
            Some(ty) => format!("{name}: {ty}"),
            None => name.to_owned(),
        };
        let all = |values: Vec<String>| values.join(", ");
        let (inputs, outputs) = (
            all(state.running.inputs().map(typed).collect()),
            all(state.running.outputs().map(typed).collect()),
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
        let state = self.state();
        let run = || {
            let outputs = state
                .running
                .run(given.into_iter().map(|(name, tensor)| (name, Value::from(tensor))))?;
            let hosts = outputs.iter().map(|(name, value)| {
                let memory = value.host().and_then(|memory| copied(&memory));
                Ok((
                    name.to_owned(),
                    memory.map_err(|error| error.in_module(format!("output {name:?}")))?,
                ))
            });
            hosts.collect::<Result<Vec<_>>>()
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
