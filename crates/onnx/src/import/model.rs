//! A model that can be run.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use polygrad_core::{Error, ErrorKind, Result};
use polygrad_tensor::{Device, Tensor};
use smallvec::SmallVec;

use super::call::Operands;
use super::fit::{Dims, fit};
use super::inline::inline;
use super::limits::Limits;
use super::options::Options;
use super::outputs::Outputs;
use super::plan::Plan;
use super::planner::Planner;
use super::replay::Replays;
use super::rows::Follower;
use super::unknown::unknown_ops;
use super::value::Value;
use crate::engine::{self, Engine, Session, Source};
use crate::graph::{Body, Graph, Header, Initializer, Literal, ValueId, ValueType};

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
pub struct OnnxModel {
    header: Header,
    opsets: HashMap<String, i64>,
    body: Body,
    device: Device,
    options: Options,
    /// Parameters that were made trainable or given other values.
    parameters: HashMap<String, Tensor>,
    /// The parameters that the plan does not fold, since they required a gradient when it was made.
    unfolded: HashSet<String>,
    /// Whether only the values kept by the runner are left of the parameters.
    is_fixed: bool,
    /// Inputs that may be left out.
    defaults: HashSet<ValueId>,
    output_names: Arc<[String]>,
    runner: Runner,
    /// Replays of the plan, if the runner is one.
    replays: Replays,
}

/// The engine of a model.
enum Runner {
    /// The native engine's steps.
    Plan(Plan),
    /// Another engine.
    Session(Box<dyn Session>),
}

impl OnnxModel {
    /// Loads a file, and the files with external data beside it.
    ///
    /// # Errors
    /// As [`Graph::load`]; and [`ErrorKind::Unsupported`] for an op, or a version of one, that is not known here.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Self::load_with(path, device, Options::default())
    }

    /// [`OnnxModel::load`] with options, such as another engine.
    ///
    /// # Errors
    /// As [`OnnxModel::load`]; and [`ErrorKind::BackendUnavailable`] when the engine is not in this build or
    /// its library is missing.
    pub fn load_with(path: impl AsRef<Path>, device: &Device, options: Options) -> Result<Self> {
        let path = path.as_ref();
        // Checked before a large file is read in vain.
        options.engine.available()?;
        let graph = Graph::load_within(path, options.max_memory_bytes)?;
        let load = || {
            if options.engine == Engine::Native {
                return Self::native(&graph, device, options, || Ok(Source::File(path)));
            }
            let session = engine::open(Source::File(path), &graph, options)?;
            Ok(Self::with_session(&graph, device, options, session))
        };
        load().map_err(|e: Error| e.in_module(path.display().to_string()))
    }

    /// Makes a graph ready to run.
    ///
    /// # Errors
    /// As [`OnnxModel::load_with`].
    pub fn from_graph(graph: &Graph, device: &Device, options: Options) -> Result<Self> {
        if options.engine == Engine::Native {
            return Self::native(graph, device, options, || Ok(Source::Bytes(graph.to_bytes()?)));
        }
        let session = engine::open(Source::Bytes(graph.to_bytes()?), graph, options)?;
        Ok(Self::with_session(graph, device, options, session))
    }

    /// Loads into the native engine. If it lacks ops, `source` is tried with other engines.
    fn native<'a>(
        graph: &Graph,
        device: &Device,
        options: Options,
        source: impl Fn() -> Result<Source<'a>>,
    ) -> Result<Self> {
        let body = inline(graph)?;
        if let Some(unknown) = unknown_ops(&body) {
            return Err(Error::unsupported(unknown).with_hint(engine::others(source, graph, options)));
        }
        let plan = plan(&body, &graph.opsets, device, options, &HashMap::new())?;
        Ok(Self::with_runner(graph, body, device, options, Runner::Plan(plan)))
    }

    fn with_session(graph: &Graph, device: &Device, options: Options, session: Box<dyn Session>) -> Self {
        // Another engine may run functions that cannot be inlined here. Rows are not tracked then.
        let body = inline(graph).unwrap_or_else(|_| graph.body.clone());
        Self::with_runner(graph, body, device, options, Runner::Session(session))
    }

    fn with_runner(graph: &Graph, body: Body, device: &Device, options: Options, runner: Runner) -> Self {
        let plan = match &runner {
            Runner::Plan(plan) => Some(plan),
            Runner::Session(_) => None,
        };
        let replays = Replays::new(plan, &options, device);
        let fixed: HashSet<ValueId> = body.initializers.iter().map(|initializer| initializer.value).collect();
        Self {
            header: graph.header.clone(),
            opsets: graph.opsets.clone(),
            device: device.clone(),
            options,
            parameters: HashMap::new(),
            unfolded: HashSet::new(),
            is_fixed: false,
            defaults: body.inputs.iter().copied().filter(|id| fixed.contains(id)).collect(),
            output_names: body.outputs.iter().map(|&id| body.name_of(id).to_owned()).collect(),
            body,
            runner,
            replays,
        }
    }

    // What it is.

    /// What the file says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The engine that runs it.
    pub fn engine(&self) -> Engine {
        self.options.engine
    }

    /// The device that its outputs are on; the native engine runs there.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The inputs that a run needs, in order: name, and type if the file says it.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Option<&ValueType>)> {
        let needed = self.body.inputs.iter().map(|&id| self.body.value(id));
        let needed = needed.zip(&self.body.inputs).filter(|(_, id)| !self.has_default(**id));
        needed.map(|(value, _)| (value.name.as_str(), value.ty.as_ref()))
    }

    /// The inputs that a run may leave out, in order: name, type if the file says it, and default.
    pub fn optional_inputs(&self) -> impl Iterator<Item = (&str, Option<&ValueType>, &Literal)> {
        let optional = self.body.inputs.iter().filter(|id| self.has_default(**id));
        optional.filter_map(|&id| {
            let (value, default) = (self.body.value(id), self.body.initializer(id)?);
            Some((value.name.as_str(), value.ty.as_ref(), &default.tensor))
        })
    }

    /// The outputs in order: name, and type if the file says it.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, Option<&ValueType>)> {
        let values = self.body.outputs.iter().map(|&id| self.body.value(id));
        values.map(|value| (value.name.as_str(), value.ty.as_ref()))
    }

    /// The ops that a run executes, in order. For an op that the native engine fused from several nodes, all their
    /// names, as in `Conv+Relu`. Empty for other engines.
    pub fn steps(&self) -> Vec<&str> {
        match &self.runner {
            Runner::Plan(plan) => plan.steps.iter().map(|step| step.node.op_type.as_str()).collect(),
            Runner::Session(_) => Vec::new(),
        }
    }

    /// The number of sets of shapes whose runs are replayed by now. A set is replayed from its fourth run on.
    pub fn replays(&self) -> usize {
        self.replays.count()
    }

    /// The reason why no run is replayed, if that is so: a node such as NonZero reads values on the host. Known from
    /// the second run on.
    pub fn replay_refusal(&self) -> Option<&str> {
        self.replays.refusal()
    }

    /// The reason why a row of the outputs may depend on the rest of its batch: the node that mixes rows, or that is
    /// not known to keep them apart. `None` if rows are independent. `axes` are the axes of the rows in
    /// [`OnnxModel::inputs`] and in the outputs; `inputs` returns values with the given number of rows and always the
    /// same other extents. Nodes are run on them one by one on [`OnnxModel::device`], whatever the engine. Call this
    /// before [`OnnxModel::without_parameters`].
    ///
    /// # Errors
    /// If a node fails on the values.
    pub fn mixes_rows(
        &self,
        axes: [&[usize]; 2],
        inputs: impl Fn(usize) -> Result<Vec<Value>>,
    ) -> Result<Option<String>> {
        let follower = match Follower::new(&self.body, &self.opsets, &self.device, &self.options) {
            Ok(follower) => follower,
            Err(unknown) => return Ok(Some(unknown.to_string())),
        };
        let trace = |rows: usize| {
            let mut given = inputs(rows)?.into_iter().zip(axes[0]);
            let mut dims = Dims::new();
            let all = self.body.inputs.iter().map(|&id| match self.has_default(id) {
                true => Ok((self.default(id)?, None)),
                false => match given.next() {
                    Some((value, &axis)) => Ok((fit(value, self.body.value(id), &mut dims)?, Some(axis))),
                    None => Err(self.wrong_count(axes[0].len())),
                },
            });
            follower.follow(all.collect::<Result<_>>()?, axes[1], rows)
        };
        let first = trace(2)?;
        if first.mixed.is_some() {
            return Ok(first.mixed);
        }
        Ok(match trace(3) {
            Ok(second) => follower.verdict([first, second]),
            Err(error) => Some(format!("it runs on two rows and not on three: {error}")),
        })
    }

    // What it learned.

    /// The initializers of a float dtype, by name, in the file's order.
    ///
    /// # Errors
    /// When the device lacks a dtype or memory.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>> {
        if self.is_fixed {
            return Ok(Vec::new());
        }
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

    /// Makes the parameters trainable for which `choose` returns true; they have the initializers' names. Values that
    /// depend on them are no longer folded.
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

    /// Sets the values of parameters, such as after a training step or from a state dict. A tensor that requires a
    /// gradient keeps doing so.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`] for a name that is no parameter, or a value of another shape or dtype; also if an
    /// engine other than native runs the model, or after [`OnnxModel::without_parameters`].
    pub fn set(&mut self, values: impl IntoIterator<Item = (String, Tensor)>) -> Result<()> {
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
        if self.is_fixed {
            return Err(
                Error::new(ErrorKind::StateDict, "the model's parameters were let go of")
                    .with_hint("keep the model as it was loaded, without OnnxModel::without_parameters"),
            );
        }
        let mut parameters = self.parameters.clone();
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
            same_plan &= self.unfolded.contains(&name);
            parameters.insert(name, tensor);
        }
        // As soon as nothing is trained, another plan folds what it can.
        let is_trained = parameters.values().any(Tensor::is_tracked);
        same_plan &= is_trained;
        if same_plan {
            for (slot, value) in &mut current.constants {
                // The planner's own values come after those of the body.
                let info = self.body.values.get(*slot);
                if let Some(tensor) = info.and_then(|info| parameters.get(&info.name)) {
                    *value = tensor.clone().into();
                }
            }
            current.workspaces.clear();
            self.parameters = parameters;
            return Ok(());
        }
        *current = plan(&self.body, &self.opsets, &self.device, self.options, &parameters)?;
        let tracked = parameters.iter().filter(|(_, value)| value.is_tracked());
        self.unfolded = tracked.map(|(name, _)| name.clone()).collect();
        self.replays = match is_trained {
            true => Replays::off("its parameters are trained"),
            false => Replays::new(Some(current), &self.options, &self.device),
        };
        self.parameters = parameters;
        Ok(())
    }

    /// Drops the initializers as the file has them, since the engine keeps its own form of them: packed weights are
    /// then in memory once, not twice. Afterwards there are no parameters to train or to set.
    #[must_use]
    pub fn without_parameters(mut self) -> Self {
        let defaults = &self.defaults;
        let is_default = |initializer: &Initializer| defaults.contains(&initializer.value);
        self.body.initializers.retain(is_default);
        self.body.nodes = Vec::new();
        self.is_fixed = true;
        self
    }

    // Running it.

    /// Runs the model on tensors, one for each of [`OnnxModel::inputs`] in order.
    ///
    /// # Errors
    /// When there are too few or too many, one does not have the dtype or shape that the file says, or a node
    /// fails: the error names it.
    pub fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        self.run_ordered(inputs.iter().map(|tensor| tensor.clone().into()))
    }

    /// [`OnnxModel::forward`] on values of any kind.
    ///
    /// # Errors
    /// As [`OnnxModel::forward`].
    pub fn run_ordered(&self, inputs: impl ExactSizeIterator<Item = Value>) -> Result<Outputs> {
        let count = inputs.len();
        let mut given = inputs;
        let mut dims = Dims::new();
        let mut values = Given::new();
        for &id in &self.body.inputs {
            let info = self.body.value(id);
            if self.has_default(id) {
                values.push(None);
                continue;
            }
            let Some(value) = given.next() else {
                return Err(self.wrong_count(count));
            };
            values.push(Some(fit(value, info, &mut dims)?));
        }
        if given.next().is_some() {
            return Err(self.wrong_count(count));
        }
        self.execute(values)
    }

    fn wrong_count(&self, count: usize) -> Error {
        Error::invalid(format!(
            "{count} inputs, but the model takes {}: {}",
            self.inputs().count(),
            self.input_names()
        ))
    }

    /// Runs the model on named tensors.
    ///
    /// # Errors
    /// When one is missing or unknown; and as [`OnnxModel::forward`].
    pub fn forward_named(&self, inputs: &[(&str, &Tensor)]) -> Result<Outputs> {
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
    pub fn run(&self, inputs: impl IntoIterator<Item = (String, Value)>) -> Result<Outputs> {
        let mut given: HashMap<String, Value> = inputs.into_iter().collect();
        let mut dims = Dims::new();
        let mut values = Given::new();
        for &id in &self.body.inputs {
            let info = self.body.value(id);
            let value = given.remove(&info.name).map(|value| fit(value, info, &mut dims));
            let value = value.transpose()?;
            if value.is_none() && !self.has_default(id) {
                return Err(Error::invalid(format!("the input {:?} is missing", info.name))
                    .with_hint(format!("the model takes {}", self.input_names())));
            }
            values.push(value);
        }
        if let Some(name) = given.keys().next() {
            return Err(Error::invalid(format!("the model has no input {name:?}"))
                .with_hint(format!("it takes {}", self.input_names())));
        }
        self.execute(values)
    }

    /// Runs on values for all inputs of the body; `None` selects the default.
    fn execute(&self, values: Given) -> Result<Outputs> {
        let named = values.into_iter().zip(&self.body.inputs);
        let values = match &self.runner {
            Runner::Plan(plan) => {
                let mut values = Operands::new();
                for (value, &id) in named {
                    values.push(value.map_or_else(|| self.default(id), Ok)?);
                }
                let limits = Limits::new(&self.options, plan.bytes);
                self.replays.run(plan, values, &self.device, &limits)?
            }
            Runner::Session(session) => {
                let named = named.filter_map(|(value, &id)| Some((self.body.name_of(id).to_owned(), value?)));
                let literals = named.map(|(name, value)| Ok((name, value.literal()?)));
                let results = session.run(&literals.collect::<Result<Vec<_>>>()?)?;
                results.into_iter().map(Value::from).collect()
            }
        };
        Ok(Outputs {
            names: Arc::clone(&self.output_names),
            values,
            device: self.device.clone(),
        })
    }

    fn has_default(&self, id: ValueId) -> bool {
        self.defaults.contains(&id)
    }

    /// The default of an input.
    fn default(&self, id: ValueId) -> Result<Value> {
        match (self.parameters.get(self.body.name_of(id)), self.body.initializer(id)) {
            (Some(tensor), _) => Ok(tensor.clone().into()),
            (None, Some(initializer)) => Ok(initializer.tensor.clone().into()),
            (None, None) => Err(Error::invalid("an input without a default")),
        }
    }

    /// The names of all inputs, for errors.
    fn input_names(&self) -> String {
        let needed: Vec<&str> = self.inputs().map(|(name, _)| name).collect();
        let optional: Vec<&str> = self.optional_inputs().map(|(name, ..)| name).collect();
        match optional.is_empty() {
            true => needed.join(", "),
            false => format!("{}, and may take {}", needed.join(", "), optional.join(", ")),
        }
    }
}

fn plan(
    body: &Body,
    opsets: &HashMap<String, i64>,
    device: &Device,
    options: Options,
    parameters: &HashMap<String, Tensor>,
) -> Result<Plan> {
    Planner {
        device,
        opsets,
        parameters,
        fold: options.fold_constants,
        fuse: options.fuse,
        limits: &Limits::folding(&options),
    }
    .plan(body)
}

/// Values for the inputs of a body.
type Given = SmallVec<[Option<Value>; 4]>;
