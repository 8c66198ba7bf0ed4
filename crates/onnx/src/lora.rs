//! Adapters (LoRA) in a graph: small changes of the weights of a model that others trained, which are trained instead
//! of the weights themselves.
//!
//! An adapter is ordinary nodes and initializers, so that the adapted graph runs, trains, is saved and is read by other
//! programs as any other one. [`attach`] adds it, [`keep`] takes over what was trained, and [`merge`] adds it to the
//! weights and leaves the nodes that the graph had.
//!
//! ```no_run
//! use polygrad_nn::lora::LoraConfig;
//! use polygrad_onnx::graph::Graph;
//! use polygrad_onnx::{OnnxModel, Options, lora};
//! use polygrad_tensor::{Device, Tensor};
//!
//! # fn main() -> polygrad_tensor::Result<()> {
//! let device = Device::new("cpu")?;
//! let mut graph = Graph::load("classifier.onnx")?;
//! lora::attach(&mut graph, "mine", &LoraConfig::new(8).alpha(16.0), &device)?;
//! let mut model = OnnxModel::from_graph(&graph, &device, Options::default())?;
//! model.train(lora::is_adapter)?;
//!
//! let mut factors = model.parameters()?;
//! factors.retain(|(name, _)| lora::is_adapter(name));
//!
//! let x = Tensor::ones([1, 64], &device)?;
//! for _ in 0..100 {
//!     let loss = model.forward(std::slice::from_ref(&x))?.tensor(0)?.square()?.mean_all()?;
//!     let gradients = loss.backward()?;
//!     for (name, value) in &mut factors {
//!         if let Some(gradient) = gradients.by_name(name) {
//!             *value = Tensor::var(name, value.detach().sub(&(gradient * 0.01)?)?)?;
//!         }
//!     }
//!     model.set(factors.clone())?;
//! }
//!
//! lora::keep(&mut graph, &model)?;
//! lora::merge(&mut graph, &device)?;
//! graph.save("adapted.onnx")?;
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use polygrad_core::{DType, Error, HostTensor, Result, printable};
use polygrad_nn::lora::LoraConfig;
use polygrad_nn::{Fan, Init};
use polygrad_tensor::{Device, Tensor, no_grad};

use crate::OnnxModel;
use crate::graph::{Attribute, Body, Graph, ValueId, ValueInfo, free_name};
use crate::quantize::{Layer, Seen, Writer};

/// Precedes the name of a factor in the name of its initializer, as in PEFT's files.
const PARTS: &str = ".lora_";

/// Adds an adapter to layers of a graph, and returns their paths. The outputs do not change until it is trained.
///
/// Layers are MatMul, Gemm and Conv (without groups or dilation) with a weight in f32 that is fixed in the file. The
/// path of a layer is the name of its weight without `.weight`; if the weight has no such name, that of the node, as
/// PyTorch writes it: `/encoder/query/MatMul` is `encoder.query`; if that has none either, the weight's whole name.
/// Layers that share a weight share its factors. By default all MatMul and Gemm get the adapter.
///
/// The factors are the initializers `PATH.lora_A.NAME.weight` and `PATH.lora_B.NAME.weight`, in PEFT's shapes.
///
/// # Errors
/// If an option is out of range, is dropout or DoRA, or names no layer; if the graph has an adapter already; and if the
/// device fails. The graph is then unchanged.
pub fn attach(graph: &mut Graph, name: &str, config: &LoraConfig, device: &Device) -> Result<Vec<String>> {
    if name.is_empty() || name.contains(['.', '/']) {
        return refuse(
            format!("an adapter cannot be called {}", printable(name)),
            "its name is not empty and has no dot and no slash",
        );
    }
    if graph.body.values.iter().any(|value| value.name.contains(PARTS)) {
        return refuse(
            "the graph has an adapter already".to_owned(),
            "merge it first, or attach to the file that it was made of",
        );
    }
    let (rank, scale) = config.low_rank()?;
    let layers = layers(&graph.body);
    let known: Vec<(&str, bool)> = layers
        .iter()
        .map(|(path, layer)| (&**path, layer.op != "Conv"))
        .collect();
    let chosen = config.chosen(&known)?;
    let chosen: Vec<_> = layers
        .iter()
        .zip(chosen)
        .filter_map(|(layer, chosen)| chosen.then_some(layer))
        .collect();
    if chosen.is_empty() {
        return refuse(
            "the graph has no layer left to have the adapter".to_owned(),
            "give a model in f32 with MatMul, Gemm or Conv, and exclude fewer of them",
        );
    }
    let adapter = Adapter { name, rank, scale };
    let changed = adapter.insert(&graph.body, &chosen, device)?;
    graph.body = changed;
    let mut paths: Vec<String> = Vec::new();
    for (path, _) in chosen {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    Ok(paths)
}

fn refuse<T>(what: String, hint: &str) -> Result<T> {
    Err(Error::invalid(what).with_op("lora").with_hint(hint.to_owned()))
}

/// Whether a parameter of [`OnnxModel::parameters`] is a factor of an adapter: the argument of [`OnnxModel::train`].
pub fn is_adapter(name: &str) -> bool {
    name.rsplit_once(PARTS)
        .is_some_and(|(_, part)| part.starts_with("A.") || part.starts_with("B."))
}

/// Whether a name is that of a factor of the layer with this path.
fn is_part_of(name: &str, path: &str) -> bool {
    name.strip_prefix(path).is_some_and(|rest| rest.starts_with(PARTS))
}

/// Takes over the values of parameters that were trained, of an adapter or not, into the graph that the model was made
/// of.
///
/// # Errors
/// If the graph lacks such a parameter, or has one of another shape or dtype; the graph is then unchanged. And if a
/// device fails.
pub fn keep(graph: &mut Graph, model: &OnnxModel) -> Result<()> {
    let body = &mut graph.body;
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, initializer) in body.initializers.iter().enumerate() {
        places.insert(body.name_of(initializer.value).to_owned(), place);
    }
    let mut values = Vec::new();
    for (name, tensor) in model
        .parameters()?
        .into_iter()
        .filter(|(_, tensor)| tensor.is_tracked())
    {
        let value = tensor.detach().to_host()?;
        let place = places.get(&name).copied().filter(|place| {
            let host = body.initializers[*place].tensor.host();
            (host.shape(), host.dtype()) == (value.shape(), value.dtype())
        });
        let Some(place) = place else {
            let text = format!(
                "the graph has no parameter {name:?} of {}{}",
                value.dtype(),
                value.shape()
            );
            return Err(Error::invalid(text).with_hint("give the graph that the model was made of"));
        };
        values.push((place, value));
    }
    for (place, value) in values {
        body.initializers[place].tensor = value.into();
    }
    Ok(())
}

/// Adds the adapter to the weights, and removes its nodes. A weight that other nodes read, too, such as an embedding,
/// stays as it is for them.
///
/// # Errors
/// If the graph has no adapter that [`attach`] added, or factors without their layer, and if the device fails. The
/// graph is then unchanged.
pub fn merge(graph: &mut Graph, device: &Device) -> Result<()> {
    let body = &graph.body;
    let mut weights: BTreeMap<ValueId, (String, HostTensor, Vec<usize>)> = BTreeMap::new();
    for (path, layer) in layers(body) {
        if let Some((.., nodes)) = weights.get_mut(&layer.weight) {
            nodes.push(layer.node);
        } else if let Some(change) = Change::of(body, &path, &layer) {
            weights.insert(layer.weight, (path, change.merged(device)?, vec![layer.node]));
        }
    }
    let factors = body
        .initializers
        .iter()
        .map(|initializer| body.name_of(initializer.value));
    let mut factors = factors.filter(|name| is_adapter(name));
    if let Some(name) = factors.find(|name| !weights.values().any(|(path, ..)| is_part_of(name, path))) {
        return refuse(
            format!("{name:?} is a factor of no layer of the graph"),
            "give the graph as lora::attach made it",
        );
    }
    if weights.is_empty() {
        return refuse(
            "the graph has no adapter".to_owned(),
            "attach one with lora::attach, and train it",
        );
    }
    let readers = Seen::new(body).readers;
    let part = |id: ValueId| body.name_of(id).contains(PARTS);
    let mut merged = body.clone();
    // The results of layers, by those of the nodes that add the adapter to them.
    let added = body.nodes.iter().filter_map(|node| {
        let (sum, first) = ((*node.outputs.first()?)?, (*node.inputs.first()?)?);
        (!part(sum) && is_base(body.name_of(first))).then_some((first, sum))
    });
    let added: HashMap<ValueId, ValueId> = added.collect();
    let sums: HashSet<ValueId> = added.values().copied().collect();
    for (weight, (path, value, nodes)) in weights {
        let alone = readers[&weight].iter().all(|reader| nodes.contains(reader)) && !body.outputs.contains(&weight);
        let own = merged
            .initializers
            .iter_mut()
            .find(|initializer| initializer.value == weight);
        if let Some(own) = own.filter(|_| alone) {
            own.tensor = value.into();
            continue;
        }
        let name = free_name(&format!("{path}.weight"), |name| {
            merged.values.iter().any(|value| value.name == name)
        });
        let own = merged.add_initializer(name, value);
        for node in nodes {
            merged.nodes[node].inputs[1] = Some(own);
        }
    }
    merged.nodes.retain_mut(|node| {
        let Some(&Some(made)) = node.outputs.first() else {
            return true;
        };
        if let Some(&sum) = added.get(&made) {
            node.outputs[0] = Some(sum);
            return true;
        }
        !sums.contains(&made) && !part(made)
    });
    merged
        .initializers
        .retain(|initializer| body.values.len() <= initializer.value.index() || !part(initializer.value));
    // No node has these values any more; their names are free for another adapter.
    for at in 0..merged.values.len() {
        if merged.values[at].name.contains(PARTS) {
            let name = free_name(&format!("merged_{at}"), |name| {
                merged.values.iter().any(|value| value.name == name)
            });
            merged.values[at] = ValueInfo { name, ty: None };
        }
    }
    graph.body = merged;
    Ok(())
}

/// The layers of a body that can have an adapter, with their paths.
fn layers(body: &Body) -> Vec<(String, Layer)> {
    let seen = Seen::new(body);
    let mut paths: HashMap<ValueId, String> = HashMap::new();
    let mut found = Vec::new();
    for (at, node) in body.nodes.iter().enumerate() {
        let Some(layer) = seen.layer(at, node) else { continue };
        if body.name_of(layer.weight).contains(PARTS) || (layer.op == "Conv" && !is_plain(body, &layer)) {
            continue;
        }
        let path = match paths.get(&layer.weight) {
            Some(path) => path.clone(),
            None => {
                let path = path_of(body, &layer);
                let path = free_name(&path, |path| paths.values().any(|other| other == path));
                paths.insert(layer.weight, path.clone());
                path
            }
        };
        found.push((path, layer));
    }
    // A weight that is used in two ways has no single change.
    let forms = |layer: &Layer| (layer.op == "Conv", layer.axis);
    let mut form: HashMap<ValueId, Option<(bool, usize)>> = HashMap::new();
    for (_, layer) in &found {
        let first = form.entry(layer.weight).or_insert(Some(forms(layer)));
        if *first != Some(forms(layer)) {
            *first = None;
        }
    }
    found.retain(|(_, layer)| form[&layer.weight].is_some());
    found
}

/// Whether a convolution has neither groups nor dilation, with which factors have no plain product.
fn is_plain(body: &Body, layer: &Layer) -> bool {
    let node = &body.nodes[layer.node];
    let one = |attribute: Option<&Attribute>| match attribute {
        None => true,
        Some(Attribute::Int(groups)) => *groups == 1,
        Some(Attribute::Ints(dilations)) => dilations.iter().all(|dilation| *dilation == 1),
        Some(_) => false,
    };
    one(node.attribute("group")) && one(node.attribute("dilations"))
}

fn path_of(body: &Body, layer: &Layer) -> String {
    let weight = body.name_of(layer.weight);
    if let Some(path) = weight.strip_suffix(".weight").filter(|path| !path.is_empty()) {
        return path.to_owned();
    }
    // Names of the file alone: the index of a node changes when the adapter is inserted.
    let node = body.nodes[layer.node].name.trim_start_matches('/');
    let node = node.strip_suffix(&format!("/{}", layer.op)).unwrap_or(node);
    match node {
        "" => weight.to_owned(),
        node => node.replace('/', "."),
    }
}

/// The name of a layer's result before the adapter is added.
fn is_base(name: &str) -> bool {
    name.rsplit_once(PARTS)
        .is_some_and(|(_, part)| part.starts_with("base"))
}

/// What is added to each layer.
struct Adapter<'a> {
    name: &'a str,
    rank: usize,
    scale: f64,
}

impl Adapter<'_> {
    /// A copy of the body with the adapter.
    fn insert(&self, body: &Body, layers: &[&(String, Layer)], device: &Device) -> Result<Body> {
        let by_node: HashMap<usize, &(String, Layer)> = layers.iter().map(|entry| (entry.1.node, *entry)).collect();
        let mut writer = Writer::new(body);
        let mut factors: HashMap<ValueId, [ValueId; 3]> = HashMap::new();
        for (at, node) in body.nodes.iter().enumerate() {
            let Some((path, layer)) = by_node.get(&at) else {
                writer.nodes.push(node.clone());
                continue;
            };
            let [a, b, scale] = match factors.get(&layer.weight) {
                Some(made) => *made,
                None => {
                    let made = self.factors(&mut writer, body, path, layer, device)?;
                    factors.insert(layer.weight, made);
                    made
                }
            };
            let mut part = |word: &str| writer.named(&format!("{path}{PARTS}{word}.{}", self.name));
            let (base, narrow, wide, scaled) = (part("base"), part("narrow"), part("wide"), part("scaled"));
            let mut plain = node.clone();
            let y = plain.outputs[0].replace(base);
            writer.nodes.push(plain);
            if layer.op == "Conv" {
                writer.node("Conv", &[layer.x, a], &[narrow], node.attributes.clone());
                writer.node("Conv", &[narrow, b], &[wide], Vec::new());
            } else {
                writer.node("MatMul", &[layer.x, a], &[narrow], Vec::new());
                writer.node("MatMul", &[narrow, b], &[wide], Vec::new());
            }
            writer.node("Mul", &[wide, scale], &[scaled], Vec::new());
            let y = y.ok_or_else(|| Error::invalid(format!("node {:?} has no result", node.name)))?;
            writer.node("Add", &[base, scaled], &[y], Vec::new());
        }
        Ok(writer.done())
    }

    /// The operands of the products, and the scale. `A` and `B` of linear layers are `[rank, in]` and `[out, rank]` as
    /// initializers, and transposed here.
    fn factors(
        &self,
        writer: &mut Writer,
        body: &Body,
        path: &str,
        layer: &Layer,
        device: &Device,
    ) -> Result<[ValueId; 3]> {
        let weight = body
            .initializer(layer.weight)
            .map(|weight| *weight.tensor.host().shape());
        let weight = weight.ok_or_else(|| Error::invalid(format!("{path} has no weight")))?;
        let outputs = weight[layer.axis];
        let (mut a, mut b) = (weight.dims().to_vec(), vec![1; weight.rank()]);
        match layer.op.as_str() {
            "Conv" => {
                a[0] = self.rank;
                b[..2].copy_from_slice(&[outputs, self.rank]);
            }
            _ => (a, b) = (vec![self.rank, weight[1 - layer.axis]], vec![outputs, self.rank]),
        }
        // As of PyTorch's linear layers, which PEFT takes for the first factor.
        let first = Init::KaimingUniform {
            gain: Init::gain_leaky_relu(5f64.sqrt()),
            fan: Fan::In,
        };
        let a = first.tensor(a, DType::F32, device)?.to_host()?;
        let b = Init::ZEROS.tensor(b, DType::F32, device)?.to_host()?;
        let name = self.name;
        let [a, b] = [("A", a), ("B", b)]
            .map(|(factor, value)| writer.initializer(&format!("{path}{PARTS}{factor}.{name}.weight"), value));
        let scale = HostTensor::scalar(self.scale as f32);
        let scale = writer.initializer(&format!("{path}{PARTS}scale.{name}"), scale);
        if layer.op == "Conv" {
            return Ok([a, b, scale]);
        }
        let [a, b] = [a, b].map(|id| {
            let turned = writer.value(id, "transposed");
            let perm = ("perm".to_owned(), Attribute::Ints(vec![1, 0]));
            writer.node("Transpose", &[id], &[turned], vec![perm]);
            turned
        });
        Ok([a, b, scale])
    }
}

/// A weight, and the factors of its change.
struct Change<'a> {
    weight: &'a HostTensor,
    a: &'a HostTensor,
    b: &'a HostTensor,
    scale: f64,
    /// Whether the weight is `[in, out]`.
    is_transposed: bool,
}

impl<'a> Change<'a> {
    /// The change of a layer; `None` if it has no adapter.
    fn of(body: &'a Body, path: &str, layer: &Layer) -> Option<Self> {
        let host = |id: ValueId| body.initializer(id).map(|initializer| initializer.tensor.host());
        let part = |word: &str| {
            let begin = format!("{path}{PARTS}{word}.");
            let found = body
                .initializers
                .iter()
                .find(|i| body.name_of(i.value).starts_with(&begin));
            found.map(|initializer| initializer.tensor.host())
        };
        Some(Self {
            weight: host(layer.weight)?,
            a: part("A")?,
            b: part("B")?,
            scale: part("scale")?.to_f64_vec().first().copied()?,
            is_transposed: layer.op != "Conv" && layer.axis == 1,
        })
    }

    fn merged(&self, device: &Device) -> Result<HostTensor> {
        let rank = self.b.shape()[1];
        let flat = |host: &HostTensor, rows: usize| {
            let all = Tensor::from_host(host.clone(), device)?;
            all.reshape([rows, host.shape().numel() / rows.max(1)])
        };
        no_grad(|| {
            let product = flat(self.b, self.b.shape()[0])?.matmul(&flat(self.a, rank)?)?;
            let product = if self.is_transposed { product.t()? } else { product };
            let change = (&product * self.scale)?.reshape(*self.weight.shape())?;
            Tensor::from_host(self.weight.clone(), device)?.add(&change)?.to_host()
        })
    }
}
