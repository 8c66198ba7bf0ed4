//! Models for inference and training.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use polygrad::nn::{Module, StateDict};
use polygrad::onnx::graph::{Graph, ValueType};
use polygrad::onnx::{OnnxModel, Options, Value};
use polygrad::serve::{Model as Service, OnnxService, hub};
use polygrad::{Device, Error, Result, Tensor, manual_seed};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyTuple};

use crate::arrays::array_of;
use crate::errors::raised;
use crate::network::{Network, NetworkConfig, Origin, input_dtypes};
use crate::serving::Server;
use crate::tensor::{cpu, tensor_of};
use crate::{quantize, texts, training};

/// The implementation of `polygrad.Model`.
#[pyclass(module = "polygrad._polygrad", frozen)]
pub(crate) struct Model(RwLock<Held>);

#[derive(Clone)]
enum Held {
    Graph(Arc<State>),
    /// From a folder in the Hub's format.
    Service(Arc<dyn Service>),
}

/// A graph between two trainings.
struct State {
    running: Arc<OnnxModel>,
    /// The running graph in the form of a file.
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

    /// The trainable network, to read or to change its weights.
    fn network(&self, device: &Device) -> Result<Network> {
        Network::of(&self.origin, &self.graph, device)
    }
}

impl Held {
    fn load(path: &Path, device: &Device) -> Result<Self> {
        if !path.is_dir() {
            let graph = Graph::load(path).map_err(|error| match path.extension() {
                Some(end) if end == "safetensors" => error.with_hint(
                    "such a file has weights alone: make the network that they are of, such as Model.mlp, and give \
                     them to its load_state_dict, as by safetensors.numpy.load_file",
                ),
                _ => error,
            })?;
            let loaded = State::new(Origin::Graph, graph, device);
            return loaded
                .map(Self::of)
                .map_err(|error| error.in_module(path.display().to_string()));
        }
        let (origin, graph) = match crate::rl::task(path)?.as_deref() {
            Some(training::TASK) => training::load(path, device)?,
            Some(crate::rl::TASK) => return Err(crate::rl::refused(path)),
            None if texts::is_folder(path) => {
                return hub::load(path, device, Options::default(), false).map(Self::Service);
            }
            _ => (Origin::Graph, polygrad_cli::run_graph(path)?),
        };
        State::new(origin, graph, device).map(Self::of)
    }

    fn of(state: State) -> Self {
        Self::Graph(Arc::new(state))
    }
}

impl Model {
    fn made(held: Held) -> Self {
        Self(RwLock::new(held))
    }

    fn held(&self) -> Held {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The graph, if the model is one.
    fn state(&self) -> PyResult<Arc<State>> {
        match self.held() {
            Held::Graph(state) => Ok(state),
            Held::Service(_) => Err(raised(
                Error::unsupported("the model is that of a folder of the Hub, which answers, and does not learn here")
                    .with_hint("run, embed, generate and serve are for it; `polygrad finetune` trains it"),
            )),
        }
    }

    /// The folder's model, if the model is one; `what` names the purpose.
    fn service(&self, what: &str) -> PyResult<Arc<dyn Service>> {
        match self.held() {
            Held::Service(service) => Ok(service),
            Held::Graph(_) => Err(raised(
                Error::unsupported(format!("{what} is for models of texts, and this takes numbers"))
                    .with_hint("load a folder of the Hub with config.json, tokenizer.json and weights"),
            )),
        }
    }

    fn replace(&self, state: State) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Held::of(state);
    }
}

/// The function that makes a model again, and its arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (Option<String>, Bound<'py, PyBytes>));

#[pymethods]
impl Model {
    #[staticmethod]
    #[pyo3(signature = (path, /))]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let device = cpu()?;
        py.detach(|| Held::load(&path, &device)).map(Self::made).map_err(raised)
    }

    /// A network with new weights; `config` is JSON.
    #[staticmethod]
    #[pyo3(signature = (config, seed, /))]
    fn build(py: Python<'_>, config: &str, seed: u64) -> PyResult<Self> {
        let device = cpu()?;
        let build = || {
            let config: NetworkConfig = crate::errors::settings(config)?;
            manual_seed(seed);
            let (origin, graph) = Network::new(config, &device)?.finished(&Graph::default())?;
            State::new(origin, graph, &device).map(Held::of)
        };
        py.detach(build).map(Self::made).map_err(raised)
    }

    /// Trains it; returns a summary.
    #[pyo3(signature = (order, /))]
    fn fit<'py>(&self, py: Python<'py>, order: training::Order<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state()?;
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
        training::evaluate(py, settings, data, &self.state()?.running)
    }

    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (state, device) = (self.state()?, cpu()?);
        let weights = py.detach(|| state.network(&device)?.state_dict()).map_err(raised)?;
        let found = PyDict::new(py);
        for (name, memory) in weights.iter() {
            found.set_item(name, array_of(py, memory)?)?;
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
        let (state, device) = (self.state()?, cpu()?);
        let load = || {
            let network = state.network(&device)?;
            network.load_state_dict(&given, true)?;
            let (origin, graph) = network.finished(&state.graph)?;
            State::new(origin, graph, &device)
        };
        self.replace(py.detach(load).map_err(raised)?);
        Ok(())
    }

    /// For pickle and copy.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let py = slf.py();
        let Held::Graph(state) = slf.get().held() else {
            return Err(raised(
                Error::unsupported("the model is that of a folder of the Hub, which is not copied")
                    .with_hint("use it in several threads as it is; in another process, load its folder again"),
            ));
        };
        let content = py.detach(|| match &state.origin {
            Origin::Network(config, weights) => {
                let config = serde_json::to_string(config).map_err(|error| Error::invalid(error.to_string()))?;
                Ok((Some(config), weights.to_bytes(&BTreeMap::new())?))
            }
            Origin::Graph => Ok((None, state.graph.to_bytes()?)),
        });
        let (config, bytes) = content.map_err(raised)?;
        Ok((slf.get_type().getattr("_of")?, (config, PyBytes::new(py, &bytes))))
    }

    /// What `__reduce__` has written.
    #[staticmethod]
    #[pyo3(signature = (config, content, /))]
    fn _of(py: Python<'_>, config: Option<&str>, content: &[u8]) -> PyResult<Self> {
        let device = cpu()?;
        let made = || {
            let (origin, graph) = match config {
                Some(config) => {
                    let (weights, _) = StateDict::from_bytes(content)?;
                    let origin = Origin::Network(crate::errors::settings(config)?, weights);
                    Network::of(&origin, &Graph::default(), &device)?.finished(&Graph::default())?
                }
                None => (Origin::Graph, Graph::from_bytes(content.to_vec())?),
            };
            State::new(origin, graph, &device).map(Held::of)
        };
        py.detach(made).map(Self::made).map_err(raised)
    }

    #[getter]
    fn input_names(&self) -> Vec<String> {
        let (own, needed) = (ToOwned::to_owned, |name: &str| name.to_owned());
        match self.held() {
            Held::Graph(state) => state.running.inputs().map(|(name, _)| needed(name)).collect(),
            Held::Service(service) => {
                let specs = service.signature().inputs.iter();
                specs
                    .filter(|spec| spec.default.is_none())
                    .map(|spec| &spec.name)
                    .map(own)
                    .collect()
            }
        }
    }

    #[getter]
    fn optional_input_names(&self) -> Vec<String> {
        match self.held() {
            Held::Graph(state) => {
                let optional = state.running.optional_inputs();
                optional.map(|(name, ..)| name.to_owned()).collect()
            }
            Held::Service(service) => {
                let specs = service.signature().inputs.iter();
                specs
                    .filter(|spec| spec.default.is_some())
                    .map(|spec| spec.name.clone())
                    .collect()
            }
        }
    }

    #[getter]
    fn output_names(&self) -> Vec<String> {
        match self.held() {
            Held::Graph(state) => state.running.outputs().map(|(name, _)| name.to_owned()).collect(),
            Held::Service(service) => service
                .signature()
                .outputs
                .iter()
                .map(|spec| spec.name.clone())
                .collect(),
        }
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        match self.held() {
            Held::Graph(state) => set_all(&found, &state.running.header().metadata)?,
            Held::Service(service) => set_all(&found, service.metadata())?,
        }
        Ok(found)
    }

    fn __repr__(&self) -> String {
        let all = |values: Vec<String>| values.join(", ");
        let Held::Graph(state) = self.held() else {
            let (inputs, outputs) = (all(self.input_names()), all(self.output_names()));
            return format!("polygrad.Model({inputs} -> {outputs})");
        };
        let typed = |(name, ty): (&str, Option<&ValueType>)| match ty.and_then(ValueType::as_tensor) {
            Some(ty) => format!("{name}: {ty}"),
            None => name.to_owned(),
        };
        let (inputs, outputs) = (
            all(state.running.inputs().map(typed).collect()),
            all(state.running.outputs().map(typed).collect()),
        );
        format!("polygrad.Model({inputs} -> {outputs})")
    }

    /// Writes an ONNX or a safetensors file, depending on the ending.
    #[pyo3(signature = (path, /))]
    fn export(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let (state, device) = (self.state()?, cpu()?);
        let export = || match path.extension().and_then(|end| end.to_str()) {
            Some("onnx") => state.graph.save(&path),
            Some("safetensors") => state.network(&device)?.state_dict()?.save(&path),
            _ => Err(Error::invalid(format!("{} says no form by its ending", path.display()))
                .with_hint("end it in .onnx, or in .safetensors for the weights alone")),
        };
        py.detach(export).map_err(raised)
    }

    /// The model in 8 bits, and the loss of accuracy of its layers; `order` is JSON.
    #[pyo3(signature = (order, inputs, /))]
    fn quantize<'py>(
        &self,
        py: Python<'py>,
        order: &str,
        inputs: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<(Self, Vec<Bound<'py, PyDict>>)> {
        let (state, device) = (self.state()?, cpu()?);
        let order = quantize::Order::read(order).map_err(raised)?;
        let inputs = inputs
            .iter()
            .map(|input| tensor_of(input, None)?.to_host().map_err(raised));
        let inputs = inputs.collect::<PyResult<Vec<_>>>()?;
        let made = py.detach(|| {
            let quantized = order.run(&state.graph, &input_dtypes(&state.running)?, &inputs, &device)?;
            let state = State::new(Origin::Graph, quantized.graph.clone(), &device)?;
            Ok((Self::made(Held::of(state)), quantized))
        });
        let (model, quantized) = made.map_err(raised)?;
        Ok((model, quantize::report(py, &quantized)?))
    }

    #[pyo3(signature = (texts, batch_size, /))]
    fn embed<'py>(&self, py: Python<'py>, texts: Vec<String>, batch_size: usize) -> PyResult<Bound<'py, PyAny>> {
        texts::embed(py, &self.service("embed")?, texts, batch_size)
    }

    #[pyo3(signature = (order, /))]
    fn generate<'py>(&self, py: Python<'py>, order: texts::Writing) -> PyResult<Bound<'py, PyTuple>> {
        texts::generate(py, &self.service("generate")?, order)
    }

    /// Starts a server that answers over HTTP.
    #[pyo3(signature = (name, host, port, threads, /))]
    fn serve(&self, py: Python<'_>, name: &str, host: &str, port: u16, threads: usize) -> PyResult<Server> {
        let held = self.held();
        let serve = || {
            let service = match held {
                Held::Service(service) => service,
                Held::Graph(state) => {
                    // Requests are computed in parallel, so that a device's own threads would only wait for each other.
                    let device = Device::new("cpu:threads=1")?;
                    let model = OnnxModel::from_graph(&state.graph, &device, Options::default())?;
                    Arc::new(OnnxService::new(model)?)
                }
            };
            Server::start(service, name, host, port, threads)
        };
        py.detach(serve).map_err(raised)
    }

    #[pyo3(signature = (inputs, /))]
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        if let Held::Service(service) = self.held() {
            return texts::run(py, &service, inputs);
        }
        let (given, state) = (self.given(inputs)?, self.state()?);
        let run = || {
            let outputs = state
                .running
                .run(given.into_iter().map(|(name, tensor)| (name, Value::from(tensor))))?;
            let hosts = outputs.iter().map(|(name, value)| {
                let memory = value
                    .host()
                    .map_err(|error| error.in_module(format!("output {name:?}")));
                Ok((name.to_owned(), memory?))
            });
            hosts.collect::<Result<Vec<_>>>()
        };
        let found = PyDict::new(py);
        for (name, memory) in py.detach(run).map_err(raised)? {
            found.set_item(name, array_of(py, &memory)?)?;
        }
        Ok(found)
    }
}

/// Writes the model of a run of `polygrad finetune` with its training merged into the weights: to a new folder in the
/// Hub's format, which `Model.load` takes, or only the weights to a file that ends in `.safetensors`.
#[pyfunction]
#[pyo3(signature = (run, out, /))]
pub(crate) fn merge(py: Python<'_>, run: PathBuf, out: PathBuf) -> PyResult<()> {
    py.detach(|| polygrad_cli::merge(&run, &out)).map_err(raised)
}

fn set_all(dict: &Bound<'_, PyDict>, texts: &[(String, String)]) -> PyResult<()> {
    texts.iter().try_for_each(|(key, value)| dict.set_item(key, value))
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

/// An exception about an input, with its name as a note if this Python has notes.
fn noted(py: Python<'_>, error: PyErr, name: &str) -> PyErr {
    let _ = error
        .value(py)
        .call_method1("add_note", (format!("of the input {name:?}"),));
    error
}
