//! A model that can be run.

use std::collections::HashMap;
use std::path::Path;

use polygrad_core::{AnyBackend, Backend, DType, Error, ErrorKind, Result};
use polygrad_tensor::{Device, Tensor};

use super::inline::inline;
use super::limits::Limits;
use super::options::Options;
use super::outputs::Outputs;
use super::plan::{Plan, Planner};
use super::value::Value;
use crate::engine::{self, Engine, Session, Source};
use crate::graph::{Body, Dim, Graph, Header, TensorType, ValueId, ValueType};

/// A model from an ONNX file, loaded once and run many times.
///
/// ```no_run
/// use polygrad_onnx::OnnxModel;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::new("cpu")?;
/// let model = OnnxModel::load("model.onnx", &device)?;
/// let outputs = model.forward(&[Tensor::zeros([1, 3, 224, 224], &device)?])?;
/// println!("{}", outputs.tensor(0)?);
/// # Ok(())
/// # }
/// ```
pub struct OnnxModel<B: Backend = AnyBackend> {
    header: Header,
    opsets: HashMap<String, i64>,
    body: Body,
    device: Device<B>,
    options: Options,
    /// Those that somebody made trainable, or gave other values.
    parameters: HashMap<String, Tensor<B>>,
    runner: Runner<B>,
}

/// What runs it.
enum Runner<B: Backend> {
    /// The native engine's steps.
    Plan(Plan<B>),
    /// Another engine.
    Session(Box<dyn Session>),
}

impl<B: Backend> OnnxModel<B> {
    /// Loads a file, and the files with external data beside it.
    ///
    /// # Errors
    /// As [`Graph::load`]; and [`ErrorKind::Unsupported`] for an op, or a version of one, that is not known here.
    pub fn load(path: impl AsRef<Path>, device: &Device<B>) -> Result<Self> {
        Self::load_with(path, device, Options::default())
    }

    /// [`OnnxModel::load`], with options: another engine, for one.
    ///
    /// # Errors
    /// As [`OnnxModel::load`]; and [`ErrorKind::BackendUnavailable`] when the engine is not in this build or its library is missing.
    pub fn load_with(path: impl AsRef<Path>, device: &Device<B>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        // Before a large file is read in vain.
        options.engine.available()?;
        let load = || {
            let graph = Graph::load(path)?;
            if options.engine == Engine::Native {
                return Self::from_graph(&graph, device, options);
            }
            let session = engine::open(Source::File(path), &graph.body, options)?;
            Ok(Self::with_session(&graph, device, options, session))
        };
        load().map_err(|e: Error| e.in_module(path.display().to_string()))
    }

    /// Makes a graph ready to run.
    ///
    /// # Errors
    /// As [`OnnxModel::load_with`].
    pub fn from_graph(graph: &Graph, device: &Device<B>, options: Options) -> Result<Self> {
        if options.engine != Engine::Native {
            let session = engine::open(Source::Bytes(&graph.to_bytes()?), &graph.body, options)?;
            return Ok(Self::with_session(graph, device, options, session));
        }
        let body = inline(graph)?;
        let parameters = HashMap::new();
        let plan = plan(&body, &graph.opsets, device, options, &parameters)?;
        Ok(Self {
            header: graph.header.clone(),
            opsets: graph.opsets.clone(),
            body,
            device: device.clone(),
            options,
            parameters,
            runner: Runner::Plan(plan),
        })
    }

    fn with_session(graph: &Graph, device: &Device<B>, options: Options, session: Box<dyn Session>) -> Self {
        Self {
            header: graph.header.clone(),
            opsets: graph.opsets.clone(),
            body: graph.body.clone(),
            device: device.clone(),
            options,
            parameters: HashMap::new(),
            runner: Runner::Session(session),
        }
    }

    // What it is.

    /// What the file says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What runs it.
    pub fn engine(&self) -> Engine {
        self.options.engine
    }

    /// The device that its outputs are on; the native engine runs there.
    pub fn device(&self) -> &Device<B> {
        &self.device
    }

    /// The inputs that a run needs, in order: name, and type where the file says it.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Option<&ValueType>)> {
        let needed = self.body.inputs.iter().map(|&id| self.body.value(id));
        let needed = needed
            .zip(&self.body.inputs)
            .filter(|(_, id)| self.body.initializer(**id).is_none());
        needed.map(|(value, _)| (value.name.as_str(), value.ty.as_ref()))
    }

    /// The outputs in order: name, and type where the file says it.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, Option<&ValueType>)> {
        let values = self.body.outputs.iter().map(|&id| self.body.value(id));
        values.map(|value| (value.name.as_str(), value.ty.as_ref()))
    }

    // What it learned.

    /// The initializers of a float dtype, by name, in the file's order.
    ///
    /// # Errors
    /// When the device lacks a dtype or memory.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor<B>)>> {
        let floats = self
            .body
            .initializers
            .iter()
            .filter(|i| i.tensor.host().dtype().is_float());
        floats
            .map(|initializer| {
                let name = self.body.name_of(initializer.value).to_owned();
                let tensor = match self.parameters.get(&name) {
                    Some(tensor) => tensor.clone(),
                    None => Tensor::from_host(initializer.tensor.host().clone(), &self.device)?,
                };
                Ok((name, tensor))
            })
            .collect()
    }

    /// Lets gradients flow to the parameters for which `choose` says so; they get the initializers' names. Nothing that depends on them
    /// is folded any more.
    ///
    /// # Errors
    /// When the device lacks a dtype or memory.
    pub fn train(&mut self, mut choose: impl FnMut(&str) -> bool) -> Result<()> {
        let chosen = self.parameters()?.into_iter().filter(|(name, _)| choose(name));
        let tracked = chosen.map(|(name, tensor)| {
            let leaf = Tensor::var(&name, tensor.detach())?;
            Ok((name, leaf))
        });
        let tracked: Vec<_> = tracked.collect::<Result<_>>()?;
        self.set(tracked)
    }

    /// Gives parameters other values: those of a training step, or of a state dict. A tensor that requires a gradient keeps doing so.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`] for a name that is no parameter, or a value of another shape or dtype; and when an engine other than native
    /// runs the model.
    pub fn set(&mut self, values: impl IntoIterator<Item = (String, Tensor<B>)>) -> Result<()> {
        let Runner::Plan(current) = &mut self.runner else {
            return Err(Error::new(
                ErrorKind::NoGradient,
                format!(
                    "the engine {} keeps the parameters that the file has",
                    self.options.engine
                ),
            )
            .with_hint("load the model with the engine native"));
        };
        let mut parameters = self.parameters.clone();
        // What is tracked is never folded: where it stays tracked, the plan stays too.
        let mut same_plan = true;
        for (name, tensor) in values {
            let found = self
                .body
                .initializers
                .iter()
                .find(|i| self.body.name_of(i.value) == name);
            let wrong = |message: String| Error::new(ErrorKind::StateDict, message);
            let host = found.map(|initializer| initializer.tensor.host());
            match host {
                Some(host) if host.dtype().is_float() => {
                    if (*host.shape(), host.dtype()) != (tensor.shape(), tensor.dtype()) {
                        return Err(wrong(format!(
                            "{name} is {}{}, not {}{}",
                            host.dtype(),
                            host.shape(),
                            tensor.dtype(),
                            tensor.shape()
                        )));
                    }
                }
                _ => return Err(wrong(format!("the model has no parameter {name:?}"))),
            }
            let was_tracked = self.parameters.get(&name).is_some_and(Tensor::is_tracked);
            same_plan &= was_tracked && tensor.is_tracked();
            parameters.insert(name, tensor);
        }
        if same_plan {
            for (slot, value) in &mut current.constants {
                if let Some(tensor) = parameters.get(&self.body.values[*slot].name) {
                    *value = tensor.clone().into();
                }
            }
            self.parameters = parameters;
            return Ok(());
        }
        *current = plan(&self.body, &self.opsets, &self.device, self.options, &parameters)?;
        self.parameters = parameters;
        Ok(())
    }

    // Running it.

    /// Runs the model on tensors, one for each of [`OnnxModel::inputs`] in order.
    ///
    /// # Errors
    /// When there are too few or too many, one does not have the dtype or shape that the file says, or a node fails: the error names it.
    pub fn forward(&self, inputs: &[Tensor<B>]) -> Result<Outputs<B>> {
        let names: Vec<String> = self.inputs().map(|(name, _)| name.to_owned()).collect();
        if names.len() != inputs.len() {
            return Err(Error::invalid(format!(
                "{} inputs, but the model takes {}: {}",
                inputs.len(),
                names.len(),
                names.join(", ")
            )));
        }
        self.run(names.into_iter().zip(inputs.iter().map(|tensor| tensor.clone().into())))
    }

    /// Runs the model on named tensors.
    ///
    /// # Errors
    /// When one is missing or unknown; and as [`OnnxModel::forward`].
    pub fn forward_named(&self, inputs: &[(&str, &Tensor<B>)]) -> Result<Outputs<B>> {
        self.run(
            inputs
                .iter()
                .map(|&(name, tensor)| (name.to_owned(), tensor.clone().into())),
        )
    }

    /// Runs the model on named values of any kind. Inputs with a default may be left out.
    ///
    /// # Errors
    /// As [`OnnxModel::forward_named`].
    pub fn run(&self, inputs: impl IntoIterator<Item = (String, Value<B>)>) -> Result<Outputs<B>> {
        let mut given: HashMap<String, Value<B>> = inputs.into_iter().collect();
        let mut dims = HashMap::new();
        let mut values = Vec::with_capacity(self.body.inputs.len());
        for &id in &self.body.inputs {
            let info = self.body.value(id);
            let value = given.remove(&info.name).map(|value| match &info.ty {
                Some(ty) => fit(value, ty, &mut dims),
                None => Ok(value),
            });
            let in_input = |e: Error| e.in_module(format!("input {:?}", info.name));
            let value = value.transpose().map_err(in_input)?;
            if value.is_none() && self.body.initializer(id).is_none() {
                return Err(Error::invalid(format!("the input {:?} is missing", info.name))
                    .with_hint(format!("the model takes {}", self.input_names())));
            }
            values.push(value);
        }
        if let Some(name) = given.keys().next() {
            return Err(Error::invalid(format!("the model has no input {name:?}"))
                .with_hint(format!("it takes {}", self.input_names())));
        }
        let results = match &self.runner {
            Runner::Plan(plan) => {
                let values = values.into_iter().zip(&self.body.inputs);
                let values = values.map(|(value, &id)| value.map_or_else(|| self.default(id), Ok));
                plan.run(values.collect::<Result<_>>()?, &[], &self.device, &limits(self.options))?
            }
            Runner::Session(session) => {
                let named = values.into_iter().zip(&self.body.inputs);
                let named = named.filter_map(|(value, &id)| Some((self.body.name_of(id).to_owned(), value?)));
                let literals = named.map(|(name, value)| Ok((name, value.literal()?)));
                let results = session.run(&literals.collect::<Result<Vec<_>>>()?)?;
                results.into_iter().map(Value::from).collect()
            }
        };
        let names = self.body.outputs.iter().map(|&id| self.body.name_of(id).to_owned());
        Ok(Outputs {
            entries: names.zip(results).collect(),
            device: self.device.clone(),
        })
    }

    /// What an input is when it is left out.
    fn default(&self, id: ValueId) -> Result<Value<B>> {
        match (self.parameters.get(self.body.name_of(id)), self.body.initializer(id)) {
            (Some(tensor), _) => Ok(tensor.clone().into()),
            (None, Some(initializer)) => Ok(initializer.tensor.clone().into()),
            (None, None) => Err(Error::invalid("an input without a default")),
        }
    }

    fn input_names(&self) -> String {
        let names: Vec<&str> = self.inputs().map(|(name, _)| name).collect();
        names.join(", ")
    }
}

fn limits(options: Options) -> Limits {
    Limits::new(options.max_tensor_bytes, options.max_steps)
}

fn plan<B: Backend>(
    body: &Body,
    opsets: &HashMap<String, i64>,
    device: &Device<B>,
    options: Options,
    parameters: &HashMap<String, Tensor<B>>,
) -> Result<Plan<B>> {
    Planner {
        device,
        opsets,
        parameters,
        fold: options.fold_constants,
        limits: &limits(options),
    }
    .plan(body)
}

/// The value, if it is what the file says the input to be.
fn fit<B: Backend>(value: Value<B>, ty: &ValueType, dims: &mut HashMap<String, usize>) -> Result<Value<B>> {
    match (ty, value.shape(), value.dtype()) {
        (ValueType::Tensor(ty), Some(shape), Some(dtype)) => {
            fit_tensor(ty, shape.dims(), dtype, dims)?;
            Ok(value.with_element(ty.element))
        }
        (ValueType::Tensor(ty), ..) => Err(Error::invalid(format!("this is no tensor, but {ty} is wanted"))),
        (ValueType::Sequence(_), ..) if value.as_sequence().is_none() => {
            Err(Error::invalid("this is no sequence, but one is wanted"))
        }
        (ValueType::Optional(Some(inner)), ..) if !value.is_absent() => fit(value, inner, dims),
        _ => Ok(value),
    }
}

fn fit_tensor(ty: &TensorType, shape: &[usize], dtype: DType, dims: &mut HashMap<String, usize>) -> Result<()> {
    let found = ty.element.dtype()?;
    if found != dtype {
        return Err(Error::dtype(format!("{dtype} was given for {ty}"))
            .with_hint(format!("convert it with to_dtype to {found}")));
    }
    let Some(wanted) = &ty.shape else { return Ok(()) };
    let fits = wanted.len() == shape.len()
        && wanted.iter().zip(shape).all(|(wanted, &extent)| match wanted {
            Dim::Fixed(wanted) => *wanted == extent,
            Dim::Named(name) => *dims.entry(name.clone()).or_insert(extent) == extent,
            Dim::Unknown => true,
        });
    if fits {
        return Ok(());
    }
    Err(Error::shape(format!("a tensor of shape {shape:?} was given for {ty}"))
        .with_hint("give it the shape that the file says; equal names are equal extents"))
}
