//! Preparation of a graph: constants computed, batch normalization folded, and an op set that supports quantized nodes.

use std::collections::{HashMap, HashSet};

use polygrad_core::{Error, HostTensor, Result};
use polygrad_tensor::{Device, no_grad};

use super::layers::Seen;
use super::learned::{self, Learned};
use crate::export::fold_statistics;
use crate::graph::{Attribute, Body, ElementType, Graph, Initializer, Literal, Node, ValueId, free_name};
use crate::import::needed;
use crate::{OnnxModel, Options};

/// The op set that has all forms of QuantizeLinear, and the matching version of the format.
const WANTED: (i64, i64) = (21, 10);

/// The first op set with a scale for each channel.
const OLDEST: i64 = 13;

/// Ops whose meaning or signature changes in an op set.
const CHANGED: [(&str, i64); 15] = [
    ("DFT", 20),
    ("GridSample", 20),
    ("GroupNormalization", 21),
    ("ReduceL1", 18),
    ("ReduceL2", 18),
    ("ReduceLogSum", 18),
    ("ReduceLogSumExp", 18),
    ("ReduceMax", 18),
    ("ReduceMean", 18),
    ("ReduceMin", 18),
    ("ReduceProd", 18),
    ("ReduceSumSquare", 18),
    ("RoiAlign", 16),
    ("Split", 18),
    ("Upsample", 10),
];

/// A copy of the graph to be quantized, in f32, and the ranges it learned, if any.
///
/// # Errors
/// An op set that is too old, a graph that is quantized already, or one whose constants cannot be computed.
pub(super) fn prepare(graph: &Graph, device: &Device) -> Result<(Graph, Option<Learned>)> {
    let mut graph = graph.clone();
    let opset = graph.opsets.get("").copied().unwrap_or(0);
    if opset < OLDEST {
        return Err(Error::invalid(format!(
            "the graph is of op set {opset}, which cannot hold quantized weights with a scale for each channel"
        ))
        .with_hint("convert it to op set 13 or newer, as with onnx.version_converter, or export it anew"));
    }
    let learned = learned::is_learned(&graph.body);
    let pair = |node: &Node| matches!(&*node.op_type, "QuantizeLinear" | "DequantizeLinear");
    let mut done = graph.body.nodes.iter().filter(|node| is_quantized(node));
    if let Some(node) = done.find(|node| !(learned && pair(node))) {
        return Err(Error::invalid(format!(
            "the graph is quantized already: node {:?} is {}",
            node.name, node.op_type
        ))
        .with_hint("give the model in f32 that it was made of"));
    }
    if opset < WANTED.0 && !changes(&graph.body, opset) {
        graph.opsets.insert(String::new(), WANTED.0);
    }
    graph.header.ir_version = graph.header.ir_version.max(WANTED.1);
    compute(&mut graph, device)?;
    let mut learned = match learned {
        true => Some(learned::take(&mut graph.body)?),
        false => None,
    };
    if learned.is_some() {
        // Values computed from quantized weights.
        compute(&mut graph, device)?;
    }
    fold_batch_norm(&mut graph.body, learned.as_mut())?;
    prune(&mut graph.body);
    Ok((graph, learned))
}

fn is_quantized(node: &Node) -> bool {
    let name = node.op_type.as_str();
    name.contains("uantize") || name.starts_with("QLinear") || name.ends_with("Integer") || name == "QGemm"
}

/// Whether a node has another meaning in the wanted op set.
fn changes(body: &Body, opset: i64) -> bool {
    body.nodes.iter().any(|node| {
        let changed = |(op, since): &(&str, i64)| node.op_type == *op && opset < *since;
        let mut inner = node.attributes.iter().flat_map(|(_, attribute)| attribute.bodies());
        node.domain.is_empty() && CHANGED.iter().any(changed) || inner.any(|body| changes(body, opset))
    })
}

/// Turns weights that are computed from other constants, such as a transposed weight, into initializers.
fn compute(graph: &mut Graph, device: &Device) -> Result<()> {
    let body = &graph.body;
    let mut fixed: HashSet<ValueId> = body.initializers.iter().map(|initializer| initializer.value).collect();
    body.inputs.iter().for_each(|id| {
        fixed.remove(id);
    });
    let given = fixed.clone();
    for node in &body.nodes {
        let plain = node.domain.is_empty() && node.attributes.iter().all(|(_, value)| value.bodies().is_empty());
        let random = node.op_type.starts_with("Random") || matches!(&*node.op_type, "Bernoulli" | "Multinomial");
        // A weight in integers is to stay in integers.
        let plain = plain && node.op_type != "DequantizeLinear";
        if plain && !random && node.inputs.iter().flatten().all(|id| fixed.contains(id)) {
            fixed.extend(node.outputs.iter().flatten());
        }
    }
    let layers = body.nodes.iter().filter(|node| {
        node.domain.is_empty()
            && matches!(
                &*node.op_type,
                "MatMul" | "Gemm" | "Conv" | "BatchNormalization" | "Clip" | "QuantizeLinear" | "DequantizeLinear"
            )
    });
    let operands = layers.flat_map(|node| {
        let others = usize::from(node.op_type != "DequantizeLinear");
        node.inputs.iter().skip(others).flatten().copied()
    });
    let mut wanted: Vec<ValueId> = operands
        .filter(|id| fixed.contains(id) && !given.contains(id))
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut probe = graph.clone();
    probe.body.inputs.clear();
    probe.body.outputs.clone_from(&wanted);
    prune(&mut probe.body);
    let model = OnnxModel::from_graph(&probe, device, Options::default())?;
    let outputs = no_grad(|| model.forward(&[]))?;
    let mut computed: HashMap<ValueId, Literal> = HashMap::new();
    for (id, (_, value)) in wanted.into_iter().zip(outputs.iter()) {
        computed.insert(id, value.literal()?);
    }
    let body = &mut graph.body;
    let made = |node: &Node| matches!(node.outputs.as_slice(), [Some(id)] if computed.contains_key(id));
    body.nodes.retain(|node| !made(node));
    // Nodes with several outputs stay.
    let kept: HashSet<ValueId> = body
        .nodes
        .iter()
        .flat_map(|node| node.outputs.iter().flatten().copied())
        .collect();
    let computed = computed.into_iter().filter(|(id, _)| !kept.contains(id));
    let mut computed: Vec<Initializer> = computed.map(|(value, tensor)| Initializer { value, tensor }).collect();
    computed.sort_by_key(|initializer| initializer.value);
    body.initializers.extend(computed);
    Ok(())
}

/// Folds BatchNormalization of a convolution's output into its weights, if it is the output's only reader.
fn fold_batch_norm(body: &mut Body, mut learned: Option<&mut Learned>) -> Result<()> {
    let seen = Seen::new(body);
    let mut folds = Vec::new();
    for (i, norm) in body.nodes.iter().enumerate() {
        let conv = norm
            .inputs
            .first()
            .copied()
            .flatten()
            .filter(|_| norm.op_type == "BatchNormalization");
        let Some(place) = conv.and_then(|conv| seen.makers.get(&conv).filter(|_| seen.sole_reader(conv) == Some(i)))
        else {
            continue;
        };
        let node = &body.nodes[*place];
        let trains = matches!(norm.attribute("training_mode"), Some(Attribute::Int(1)));
        if node.op_type != "Conv" || norm.outputs.len() != 1 || trains {
            continue;
        }
        let host = |node: &Node, at: usize| {
            let literal = &body.initializer((*node.inputs.get(at)?)?)?.tensor;
            (literal.element() == ElementType::F32).then(|| literal.host())
        };
        let has_bias = node.inputs.get(2).copied().flatten().is_some();
        let (Some(weight), bias) = (host(node, 1), host(node, 2)) else {
            continue;
        };
        let [Some(scale), Some(shift), Some(mean), Some(var)] = [1, 2, 3, 4].map(|at| host(norm, at)) else {
            continue;
        };
        if has_bias == bias.is_some() {
            let eps = match norm.attribute("epsilon") {
                Some(Attribute::Float(eps)) => f64::from(*eps),
                _ => 1e-5,
            };
            let factors = scale.to_f64_vec().into_iter().zip(var.to_f64_vec());
            let factors: Vec<f64> = factors.map(|(scale, var)| scale / (var + eps).sqrt()).collect();
            let folded = fold_statistics(weight, bias, [scale, shift, mean, var], eps)?;
            folds.push((i, *place, folded, factors));
        }
    }
    let gone: Vec<usize> = folds.iter().map(|(norm, ..)| *norm).collect();
    for (norm, place, [weight, bias], factors) in folds {
        let name = match body.nodes[place].inputs[1] {
            Some(id) => body.name_of(id).to_owned(),
            None => "weight".to_owned(),
        };
        let mut add = |name: String, host: HostTensor| {
            let name = free_name(&name, |name| body.values.iter().any(|value| value.name == name));
            body.add_initializer(name, host)
        };
        let weight = add(format!("{name}.folded"), weight);
        let bias = add(format!("{name}.folded.bias"), bias);
        let outputs = std::mem::take(&mut body.nodes[norm].outputs);
        let conv = &mut body.nodes[place];
        if let (Some(learned), &[Some(x), Some(old), ..]) = (&mut learned, conv.inputs.as_slice()) {
            learned.scaled(x, [old, weight], &factors);
        }
        conv.inputs.truncate(1);
        conv.inputs.extend([Some(weight), Some(bias)]);
        conv.outputs = outputs;
    }
    let mut place = 0;
    body.nodes.retain(|_| {
        place += 1;
        !gone.contains(&(place - 1))
    });
    Ok(())
}

/// Removes nodes and initializers that do not contribute to an output.
pub(crate) fn prune(body: &mut Body) {
    let wanted = needed(body, &body.nodes);
    let mut wanted = wanted.into_iter();
    body.nodes.retain(|_| wanted.next().unwrap_or(true));
    let mut used: HashSet<ValueId> = body.outputs.iter().chain(&body.inputs).copied().collect();
    for node in &body.nodes {
        used.extend(node.inputs.iter().flatten());
        let inner = node.attributes.iter().flat_map(|(_, attribute)| attribute.bodies());
        used.extend(inner.flat_map(|body| body.captures.iter().map(|capture| capture.outer)));
    }
    body.initializers
        .retain(|initializer| used.contains(&initializer.value));
    // Only existing values keep their types.
    let given = body.nodes.iter().flat_map(|node| node.outputs.iter().flatten());
    let there: HashSet<ValueId> = given.copied().chain(used).collect();
    for (i, value) in body.values.iter_mut().enumerate() {
        if !there.contains(&ValueId(i as u32)) {
            value.ty = None;
        }
    }
}
