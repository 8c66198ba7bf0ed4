//! Adapters (LoRA) in a graph: small changes of the weights of a model that others trained, which are trained instead
//! of the weights themselves.
//!
//! An adapter is ordinary nodes and initializers, so that the adapted graph runs, trains, is saved and is read by other
//! programs as any other one. [`attach`] adds it, [`keep`] takes over what was trained, and [`merge`] adds it to the
//! weights and leaves the nodes that the graph had. [`peft`] and [`load`] are PEFT's files: an adapter of the model
//! that was exported fits the graph, and one of the graph the model, as long as the graph has the model's names.
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
use std::path::Path;

use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result, printable};
use polygrad_nn::lora::{LoraConfig, LowRank, PeftAdapter};
use polygrad_nn::{Fan, Init};
use polygrad_tensor::{Device, Tensor, no_grad};

use crate::OnnxModel;
use crate::graph::{Attribute, Body, ElementType, Graph, Node, TensorType, ValueId, ValueInfo, ValueType, free_name};
use crate::module::in_nodes;
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
/// A weight that is the operand of a Transpose alone, as files of [`ExportOnnx`](crate::ExportOnnx) have it, is stored
/// transposed instead.
///
/// The factors are the initializers `PATH.lora_A.NAME.weight` and `PATH.lora_B.NAME.weight`, in PEFT's shapes.
///
/// # Errors
/// If an option is out of range, is dropout or DoRA, or names no layer; if the graph has an adapter already; and if the
/// device fails. The graph is then unchanged.
pub fn attach(graph: &mut Graph, name: &str, config: &LoraConfig, device: &Device) -> Result<Vec<String>> {
    must_be_new(&graph.body, name)?;
    let (rank, scale) = config.low_rank()?;
    let body = as_read(&graph.body)?;
    let layers = layers(&body);
    let known: Vec<(&str, bool)> = layers
        .iter()
        .map(|(path, layer)| (&**path, layer.op != "Conv"))
        .collect();
    if layers.is_empty() {
        let error = Error::invalid("the graph has no layer that can have an adapter").with_op("lora");
        return Err(in_nodes(&body, error).with_hint("give a model in f32 with MatMul, Gemm or Conv"));
    }
    let chosen = config.chosen(&known)?;
    let mut parts: BTreeMap<String, LowRank> = BTreeMap::new();
    let mut paths: Vec<String> = Vec::new();
    for ((path, layer), chosen) in layers.iter().zip(chosen) {
        if chosen && !parts.contains_key(path) {
            parts.insert(path.clone(), started(&body, layer, rank, scale, device)?);
            paths.push(path.clone());
        }
    }
    if paths.is_empty() {
        return refuse(
            "the graph has no layer left to have the adapter".to_owned(),
            "give a model in f32 with MatMul, Gemm or Conv, and exclude fewer of them",
        );
    }
    graph.body = insert(&body, name, &layers, &parts)?;
    Ok(paths)
}

/// Adds the adapter of a folder with PEFT's files to a graph, and returns the paths of its layers. Modules that the
/// files have as a whole replace the graph's initializers of their names.
///
/// # Errors
/// If a file cannot be read or is not PEFT's; if the adapter has DoRA or adapts embeddings; if it is of another model
/// (the error names the layers and shapes that differ); if the graph has an adapter already. The graph is then
/// unchanged.
pub fn load(graph: &mut Graph, name: &str, folder: impl AsRef<Path>) -> Result<Vec<String>> {
    must_be_new(&graph.body, name)?;
    let PeftAdapter {
        layers: parts, modules, ..
    } = PeftAdapter::load(folder)?;
    let body = &as_read(&graph.body)?;
    let layers = layers(body);
    let mut faults = Vec::new();
    for (path, part) in &parts {
        let Some((_, layer)) = layers.iter().find(|(known, _)| known == path) else {
            faults.push(format!("no layer {}", printable(path)));
            continue;
        };
        let found = [*part.a.shape(), *part.b.shape()].map(|shape| shape.dims().to_vec());
        let wanted = shapes(body, layer, found[0].first().copied().unwrap_or(0))?;
        if found != wanted {
            faults.push(format!("{path}: factors {found:?}, and the weight takes {wanted:?}"));
        }
    }
    let mut values = Vec::new();
    for (name, value) in &modules {
        let initializers = body.initializers.iter();
        let place = initializers.clone().position(|known| body.name_of(known.value) == name);
        let own = place.map(|place| body.initializers[place].tensor.host());
        match (place, own) {
            (Some(place), Some(own)) if own.shape() == value.shape() && own.dtype().is_float() => {
                values.push((place, value.cast(own.dtype())));
            }
            (_, Some(own)) => faults.push(format!(
                "{name}: {}{}, the graph's is {}{}",
                value.dtype(),
                value.shape(),
                own.dtype(),
                own.shape()
            )),
            _ => faults.push(format!("no parameter {}", printable(name))),
        }
    }
    if let Some((first, more)) = faults.split_first() {
        let more = if more.is_empty() {
            String::new()
        } else {
            format!("; and {} more", more.len())
        };
        let text = format!("the adapter is of another base: {first}{more}");
        return Err(Error::new(ErrorKind::StateDict, text)
            .with_op("lora")
            .with_hint("load it into the export of the model that adapter_config.json names"));
    }
    let mut changed = insert(body, name, &layers, &parts)?;
    for (place, value) in values {
        changed.initializers[place].tensor = value.into();
    }
    graph.body = changed;
    Ok(parts.into_keys().collect())
}

/// The adapter in the form of PEFT's files: [`PeftAdapter::save`] writes them.
///
/// # Errors
/// If the graph has no adapter that [`attach`] or [`load`] added.
pub fn peft(graph: &Graph) -> Result<PeftAdapter> {
    let mut adapter = PeftAdapter::default();
    for (path, layer) in layers(&graph.body) {
        if let Some(Change { a, b, scale, .. }) = Change::of(&graph.body, &path, &layer) {
            // The graph has the scale in f32, of which alpha is a multiple.
            let rank = b.shape()[1].max(1) as f64;
            let scale = f64::from((scale * rank) as f32) / rank;
            let (a, b) = (a.clone(), b.clone());
            adapter.layers.insert(path, LowRank { a, b, scale });
        }
    }
    match adapter.layers.is_empty() {
        true => refuse(
            "the graph has no adapter".to_owned(),
            "attach one with lora::attach, and train it",
        ),
        false => Ok(adapter),
    }
}

fn must_be_new(body: &Body, name: &str) -> Result<()> {
    if name.is_empty() || name.contains(['.', '/']) {
        return refuse(
            format!("an adapter cannot be called {}", printable(name)),
            "its name is not empty and has no dot and no slash",
        );
    }
    if body.values.iter().any(|value| value.name.contains(PARTS)) {
        return refuse(
            "the graph has an adapter already".to_owned(),
            "merge it first, or attach to the file that it was made of",
        );
    }
    Ok(())
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

/// A copy of the body with the adapter in the layers that have a part of it.
fn insert(body: &Body, name: &str, layers: &[(String, Layer)], parts: &BTreeMap<String, LowRank>) -> Result<Body> {
    let with_parts = layers.iter().filter_map(|(path, layer)| {
        let part = parts.get(path)?;
        Some((layer.node, (path, layer, part)))
    });
    let by_node: HashMap<usize, (&String, &Layer, &LowRank)> = with_parts.collect();
    let mut writer = Writer::new(body);
    let mut factors: HashMap<ValueId, [ValueId; 3]> = HashMap::new();
    for (at, node) in body.nodes.iter().enumerate() {
        let Some((path, layer, low_rank)) = by_node.get(&at) else {
            writer.nodes.push(node.clone());
            continue;
        };
        let [a, b, scale] = *factors
            .entry(layer.weight)
            .or_insert_with(|| operands(&mut writer, name, path, layer, low_rank));
        let mut part = |word: &str| writer.named(&format!("{path}{PARTS}{word}.{name}"));
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

/// The body with weights as its layers read them: a matrix that only a Transpose reads is stored transposed.
fn as_read(body: &Body) -> Result<Body> {
    let seen = Seen::new(body);
    let mut turned = body.clone();
    let mut weights: HashMap<ValueId, ValueId> = HashMap::new();
    for (at, node) in body.nodes.iter().enumerate() {
        let (Some(&Some(weight)), Some(&Some(made))) = (node.inputs.first(), node.outputs.first()) else {
            continue;
        };
        let swaps = match node.attribute("perm") {
            None => true,
            Some(Attribute::Ints(perm)) => *perm == [1, 0],
            Some(_) => false,
        };
        // Inner bodies would have to be changed, too.
        let captures = |reader: &usize| {
            body.nodes[*reader]
                .attributes
                .iter()
                .any(|(_, value)| !value.bodies().is_empty())
        };
        let is_captured = seen
            .readers
            .get(&made)
            .is_some_and(|readers| readers.iter().any(captures));
        let is_read_once = seen.sole_reader(weight) == Some(at) && !body.inputs.contains(&weight);
        let is_transpose = node.op_type == "Transpose" && node.domain.is_empty() && swaps;
        if !is_transpose || !is_read_once || is_captured || body.outputs.contains(&made) {
            continue;
        }
        let own = turned.initializers.iter_mut().find(|known| known.value == weight);
        let Some(own) = own.filter(|own| own.tensor.element() == ElementType::F32) else {
            continue;
        };
        let host = own.tensor.host();
        let &[rows, columns] = host.shape().dims() else {
            continue;
        };
        let values = host.as_slice::<f32>()?;
        let columns_first = (0..rows * columns).map(|i| values[(i % rows) * columns + i / rows]);
        let tensor = HostTensor::new([columns, rows].into(), columns_first.collect::<Vec<f32>>())?;
        turned.values[weight.index()].ty = Some(ValueType::Tensor(TensorType::of(&tensor.clone().into())));
        own.tensor = tensor.into();
        weights.insert(made, weight);
    }
    let is_gone = |node: &Node| node.outputs.iter().flatten().any(|made| weights.contains_key(made));
    turned.nodes.retain(|node| !is_gone(node));
    for node in &mut turned.nodes {
        for input in node.inputs.iter_mut().flatten() {
            *input = *weights.get(input).unwrap_or(input);
        }
    }
    Ok(turned)
}

/// The shapes of the factors of a layer, as PEFT has them: `[rank, in]` and `[out, rank]` of linear layers.
fn shapes(body: &Body, layer: &Layer, rank: usize) -> Result<[Vec<usize>; 2]> {
    let weight = body
        .initializer(layer.weight)
        .map(|weight| *weight.tensor.host().shape());
    let weight = weight.ok_or_else(|| Error::invalid(format!("{} has no weight", body.name_of(layer.weight))))?;
    let outputs = weight[layer.axis];
    if layer.op != "Conv" {
        return Ok([vec![rank, weight[1 - layer.axis]], vec![outputs, rank]]);
    }
    let (mut a, mut b) = (weight.dims().to_vec(), vec![1; weight.rank()]);
    a[0] = rank;
    b[..2].copy_from_slice(&[outputs, rank]);
    Ok([a, b])
}

/// The factors of a layer before training, which do not change it.
fn started(body: &Body, layer: &Layer, rank: usize, scale: f64, device: &Device) -> Result<LowRank> {
    // As of PyTorch's linear layers, which PEFT takes for the first factor.
    let first = Init::KaimingUniform {
        gain: Init::gain_leaky_relu(5f64.sqrt()),
        fan: Fan::In,
    };
    let [a, b] = shapes(body, layer, rank)?;
    Ok(LowRank {
        a: first.tensor(a, DType::F32, device)?.to_host()?,
        b: Init::ZEROS.tensor(b, DType::F32, device)?.to_host()?,
        scale,
    })
}

/// The operands of the products, and the scale. The factors of linear layers are initializers in PEFT's shapes, and
/// transposed here.
fn operands(writer: &mut Writer, name: &str, path: &str, layer: &Layer, part: &LowRank) -> [ValueId; 3] {
    let [a, b] = [("A", &part.a), ("B", &part.b)].map(|(factor, value)| {
        let name = format!("{path}{PARTS}{factor}.{name}.weight");
        writer.initializer(&name, value.cast(DType::F32))
    });
    let scale = HostTensor::scalar(part.scale as f32);
    let scale = writer.initializer(&format!("{path}{PARTS}scale.{name}"), scale);
    if layer.op == "Conv" {
        return [a, b, scale];
    }
    let [a, b] = [a, b].map(|id| {
        let turned = writer.value(id, "transposed");
        let perm = ("perm".to_owned(), Attribute::Ints(vec![1, 0]));
        writer.node("Transpose", &[id], &[turned], vec![perm]);
        turned
    });
    [a, b, scale]
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
