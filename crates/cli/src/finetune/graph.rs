//! ONNX files of encoders, whose model learns on as a graph.

use std::path::{Path, PathBuf};

use polygrad::backend::HostTensor;
use polygrad::nn::lora::LoraConfig;
use polygrad::nn::{Init, Visit, Visitor};
use polygrad::text::Pooling;
use polygrad::{AnyBackend, DType, Device, Error, Tensor};
use polygrad_onnx::graph::{Attribute, Dim, ElementType, Graph, Node, ValueId, ValueType, external_files};
use polygrad_onnx::{OnnxModule, learnable, lora};
use serde_json::Value;

use super::ADAPTER;
use super::base::HEAD;
use super::goal::Goal;
use crate::failure::{Failure, Result, Shown};

/// The inputs that texts have values for, in the order of a batch.
const INPUTS: [&str; 3] = ["input_ids", "attention_mask", "token_type_ids"];
/// The usual names of an output with the vectors of all tokens, of one with a vector for each text, and of one with
/// numbers for each class.
const TOKENS: [&str; 2] = ["last_hidden_state", "token_embeddings"];
const TEXTS: [&str; 1] = ["sentence_embedding"];
const LOGITS: [&str; 1] = ["logits"];

/// The folder with the config and the tokenizer of a file: its own, or as on the Hub the one above it.
pub(super) fn folder_of(file: &Path) -> Result<PathBuf> {
    let own = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let own = own.unwrap_or(Path::new(".")).to_owned();
    let above = own.join("..");
    let found = [own, above]
        .into_iter()
        .find(|folder| folder.join("config.json").is_file());
    found.ok_or_else(|| {
        Failure::new(format!(
            "{} has no config.json and tokenizer.json beside it",
            file.shown()
        ))
        .fix("put the file into the folder of the model that it was exported from")
    })
}

/// A file, and those beside it with its weights.
///
/// # Errors
/// As [`external_files`].
pub(super) fn files(file: &Path) -> Result<Vec<PathBuf>> {
    let mut files = external_files(file)?;
    files.push(file.to_owned());
    Ok(files)
}

/// A graph that learns, reduced to the output that is trained.
#[derive(Debug)]
pub(crate) struct GraphModel {
    graph: Graph,
    module: OnnxModule,
    /// For each input of the graph its place among [`INPUTS`], and its whole numbers.
    inputs: Vec<(usize, DType)>,
    /// How vectors of tokens become one of the text; `None` if the graph has one of the text.
    pooling: Option<Pooling>,
    /// Whether it gives logits of classes instead of vectors.
    pub(super) is_classifier: bool,
    device: Device,
}

impl Visit<AnyBackend> for GraphModel {
    fn visit(&self, visitor: &mut Visitor<'_, AnyBackend>) {
        self.module.visit(visitor);
    }
}

impl polygrad::nn::Module for GraphModel {}

impl GraphModel {
    /// The model of a file. Without the classes' own head it gets a new one, on the vector of the first token, with
    /// weights from this thread's generator.
    ///
    /// # Errors
    /// If the file cannot be read or run; if its inputs or outputs are not those of an encoder of texts of any number
    /// and length; if it has weights of 16 bits, or a head for other classes.
    pub(super) fn open(
        path: &Path,
        config: &Value,
        known: &[String],
        pooling: Option<&Pooling>,
        goal: &Goal,
        device: &Device,
    ) -> Result<Self> {
        let mut graph = Graph::load(path)?;
        let bad = |what: String| Failure::new(format!("{} {what}", path.shown())).fix(goal.models());
        let inputs = inputs(&graph).map_err(bad)?;
        let named = |names: &[&str]| {
            let outputs = graph.body.outputs.iter().copied();
            outputs.into_iter().find(|id| names.contains(&graph.body.name_of(*id)))
        };
        let (tokens, texts, logits) = (named(&TOKENS), named(&TEXTS), named(&LOGITS));
        let (output, pooling) = match goal {
            Goal::Text => return Err(bad("is not for --task text".to_owned())),
            Goal::Embed => match (texts, tokens, pooling) {
                (Some(texts), ..) => (texts, None),
                (None, Some(tokens), Some(pooling)) => (tokens, Some(pooling.clone())),
                (None, Some(_), None) => {
                    return Err(bad(
                        "has vectors of tokens, and no modules.json beside it, which says how they become one of a text"
                            .to_owned(),
                    ));
                }
                (None, None, _) => return Err(bad(format!("has no output {} or {}", TOKENS[0], TEXTS[0]))),
            },
            Goal::Classify(classes) => match (logits, tokens) {
                (Some(logits), _) if classes.is_empty() || classes == known => (logits, None),
                (Some(_), _) if known.is_empty() => {
                    let what = "has logits, and config.json does not name their classes: it lacks id2label, or \
                                architectures that end in ForSequenceClassification";
                    return Err(bad(what.to_owned()));
                }
                (Some(_), _) => {
                    return Err(bad(format!(
                        "tells {} apart, and its head stays: the examples have {}",
                        known.join(", "),
                        classes.join(", ")
                    )));
                }
                (None, Some(tokens)) => (add_head(&mut graph, tokens, config, classes.len()).map_err(bad)?, None),
                (None, None) => return Err(bad(format!("has no output {} or {}", LOGITS[0], TOKENS[0]))),
            },
        };
        graph.keep_outputs(vec![output]);
        let module = {
            let weights = learnable(&graph.body);
            let coarse = graph.body.initializers.iter().find(|known| {
                let dtype = known.tensor.host().dtype();
                matches!(dtype, DType::F16 | DType::BF16) && weights.contains(&graph.body.name_of(known.value))
            });
            if let Some(coarse) = coarse {
                let (name, dtype) = (graph.body.name_of(coarse.value), coarse.tensor.host().dtype());
                let what = format!("{} has {name} in {dtype}, in which small steps are lost", path.shown());
                return Err(Failure::new(what).fix("export the model in f32"));
            }
            OnnxModule::new(&graph, |name| weights.contains(&name), device)
        };
        let module = module.map_err(|e| Failure::from(e.in_module(path.display().to_string())))?;
        let (is_classifier, device) = (matches!(goal, Goal::Classify(_)), device.clone());
        Ok(Self {
            graph,
            module,
            inputs,
            pooling,
            is_classifier,
            device,
        })
    }

    /// Adds an adapter, and freezes all but it and a new head.
    ///
    /// # Errors
    /// As [`lora::attach`].
    pub(super) fn attach(&mut self, adapter: &LoraConfig) -> polygrad::Result<()> {
        let has_head = self.graph.body.values.iter().any(|value| is_head(&value.name));
        let adapter = match has_head {
            // It is trained as a whole.
            true => adapter.clone().exclude([HEAD]),
            false => adapter.clone(),
        };
        let mut graph = self.graph.clone();
        lora::attach(&mut graph, ADAPTER, &adapter, &self.device)?;
        let is_trained = |name: &str| lora::is_adapter(name) || is_head(name);
        self.module = OnnxModule::new(&graph, is_trained, &self.device)?;
        self.graph = graph;
        Ok(())
    }

    /// What the graph gives for the tokens, the mask and the types of texts, each `[N, S]`: logits `[N, classes]` or
    /// vectors `[N, width]`.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn forward(&self, columns: &[Tensor; 3]) -> polygrad::Result<Tensor> {
        let given = self.inputs.iter().map(|&(place, dtype)| columns[place].to_dtype(dtype));
        let given = given.collect::<polygrad::Result<Vec<_>>>()?;
        let output = self.module.forward(&given)?.tensor(0)?;
        match &self.pooling {
            Some(pooling) => pooling.pool(&output, &columns[1]),
            None => Ok(output),
        }
    }

    /// The numbers that are not trained.
    pub(super) fn num_frozen(&self) -> usize {
        let floats = self
            .graph
            .body
            .initializers
            .iter()
            .map(|initializer| initializer.tensor.host());
        let all: usize = floats
            .filter(|host| host.dtype().is_float())
            .map(|host| host.shape().numel())
            .sum();
        all.saturating_sub(polygrad::nn::Module::num_parameters(&self.module))
    }

    /// The graph with what was learnt, the adapter in the weights.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn merged(&self) -> polygrad::Result<Graph> {
        let mut graph = self.module.written(&self.graph)?;
        if graph.body.values.iter().any(|value| lora::is_adapter(&value.name)) {
            lora::merge(&mut graph, &self.device)?;
        }
        Ok(graph)
    }

    /// The graph with what was learnt, and its inputs in the order of [`INPUTS`]. `None` if its inputs are not at least
    /// tokens and a mask in i64, or its output is not one of each text.
    ///
    /// # Errors
    /// Those of the device.
    #[cfg(feature = "serve")]
    pub(super) fn served(&self) -> polygrad::Result<Option<Graph>> {
        let has_mask = self.inputs.iter().any(|&(place, _)| place == 1);
        let is_plain = self.inputs.iter().all(|&(_, dtype)| dtype == DType::I64);
        if !has_mask || !is_plain || self.pooling.is_some() {
            return Ok(None);
        }
        let mut graph = self.merged()?;
        let body = &mut graph.body;
        let mut inputs = std::mem::take(&mut body.inputs);
        let place = |id: &ValueId| INPUTS.iter().position(|name| *name == body.name_of(*id));
        inputs.sort_by_key(|id| place(id).unwrap_or(INPUTS.len()));
        body.inputs = inputs;
        Ok(Some(graph))
    }

    /// Writes the adapter, and a new head, in PEFT's format.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn save_adapter(&self, base: Option<&Path>, folder: &Path) -> polygrad::Result<()> {
        let graph = self.module.written(&self.graph)?;
        let mut adapter = lora::peft(&graph)?;
        adapter.base = base.and_then(Path::to_str).map(str::to_owned);
        for initializer in &graph.body.initializers {
            let name = graph.body.name_of(initializer.value);
            if is_head(name) {
                adapter
                    .modules
                    .insert(name.to_owned(), initializer.tensor.host().clone());
            }
        }
        adapter.save(folder)
    }
}

fn weight() -> String {
    format!("{HEAD}.weight")
}

/// Whether a name is that of a parameter of the head.
fn is_head(name: &str) -> bool {
    [weight(), format!("{HEAD}.bias")].iter().any(|own| own == name)
}

/// The places of the graph's inputs among [`INPUTS`], and their dtypes.
fn inputs(graph: &Graph) -> std::result::Result<Vec<(usize, DType)>, String> {
    let body = &graph.body;
    let mut places = Vec::new();
    for id in body.inputs.iter().filter(|id| body.initializer(**id).is_none()) {
        let value = body.value(*id);
        let place = INPUTS.iter().position(|name| *name == value.name);
        let place =
            place.ok_or_else(|| format!("takes the input {:?}, and texts are {}", value.name, INPUTS.join(", ")))?;
        let ty = value.ty.as_ref().and_then(ValueType::as_tensor);
        let dtype = match ty.map(|ty| ty.element) {
            None | Some(ElementType::I64) => DType::I64,
            Some(ElementType::I32) => DType::I32,
            Some(other) => return Err(format!("takes {} as {other}, and texts are int64 or int32", value.name)),
        };
        if let Some(dims) = ty.and_then(|ty| ty.shape.as_ref())
            && (dims.len() != 2 || dims.iter().any(|dim| matches!(dim, Dim::Fixed(_))))
        {
            let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
            return Err(format!(
                "takes {} [{}], and texts are [batch, sequence], of any number and length",
                value.name,
                dims.join(", ")
            ));
        }
        places.push((place, dtype));
    }
    match places.iter().any(|&(place, _)| place == 0) {
        true => Ok(places),
        false => Err(format!("has no input {}", INPUTS[0])),
    }
}

/// Adds logits of classes, from the vector of the first token, and returns them.
fn add_head(
    graph: &mut Graph,
    tokens: ValueId,
    config: &Value,
    classes: usize,
) -> std::result::Result<ValueId, String> {
    let body = &mut graph.body;
    if body.values.iter().any(|value| value.name == weight()) {
        return Err(format!("has {} already, and no output {}", weight(), LOGITS[0]));
    }
    let shape = body
        .value(tokens)
        .ty
        .as_ref()
        .and_then(ValueType::as_tensor)
        .and_then(|ty| ty.shape.as_deref());
    let width = match shape {
        Some([_, _, Dim::Fixed(width)]) => Some(*width as u64),
        _ => ["hidden_size", "dim"].iter().find_map(|name| config[*name].as_u64()),
    };
    let width = width.ok_or_else(|| format!("does not say the width of {}", body.name_of(tokens)))? as usize;
    let std = config["initializer_range"].as_f64().unwrap_or(0.02);
    let device = Device::new("cpu").map_err(|e| e.to_string())?;
    let first = |init: Init, dims: Vec<usize>| {
        let made = init
            .tensor(dims, DType::F32, &device)
            .and_then(|tensor| tensor.to_host());
        made.map_err(|e: Error| e.to_string())
    };
    let weights = first(Init::Normal { mean: 0.0, std }, vec![classes.max(1), width])?;
    let biases = first(Init::ZEROS, vec![classes.max(1)])?;
    let first_place = body.add_initializer(format!("{HEAD}_first"), HostTensor::scalar(0i64));
    let weights = body.add_initializer(weight(), weights);
    let biases = body.add_initializer(format!("{HEAD}.bias"), biases);
    let vector = body.add_value(format!("{HEAD}_vector"), None);
    let dims = vec![Dim::Named("batch_size".to_owned()), Dim::Fixed(classes.max(1))];
    let logits = body.add_value(LOGITS[0], Some(ValueType::tensor(ElementType::F32, dims)));
    let node = |op: &str, inputs: &[ValueId], output: ValueId, attribute: (&str, i64)| Node {
        name: format!("/{HEAD}/{op}"),
        op_type: op.to_owned(),
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(output)],
        attributes: vec![(attribute.0.to_owned(), Attribute::Int(attribute.1))],
        ..Node::default()
    };
    body.nodes
        .push(node("Gather", &[tokens, first_place], vector, ("axis", 1)));
    body.nodes
        .push(node("Gemm", &[vector, weights, biases], logits, ("transB", 1)));
    Ok(logits)
}
