//! Layers with ranges that are known before the model runs: a QuantizeLinear and a DequantizeLinear around each.
//!
//! A layer's result is quantized if it is only read by layers, directly or through ops that move numbers. That of a
//! convolution always is, since runtimes multiply bytes only if the result is bytes. All its readers then read the
//! dequantized value. Other operands are quantized only for the layer itself.

use std::collections::{HashMap, HashSet};

use polygrad_core::Result;

use super::Quantize;
use super::calibrate::Ranges;
use super::layers::{Layer, Seen, bounds};
use super::numbers::Bytes;
use super::writer::{Writer, along};
use crate::graph::{Body, ElementType, Graph, Literal, ValueId};
use crate::import::MOVES;

/// The values that are quantized.
struct Plan {
    /// Values that are quantized for all readers.
    whole: HashMap<ValueId, Bytes>,
    /// Layers by node index.
    layers: HashMap<usize, Layer>,
    /// Clamping nodes after layers that are redundant, since bytes cannot hold the values they cut off.
    gone: HashSet<usize>,
}

/// The graph with these layers quantized.
pub(super) fn write(options: &Quantize, graph: &Graph, layers: &[Layer], ranges: &Ranges) -> Result<Graph> {
    let body = &graph.body;
    let plan = plan(body, layers, ranges);
    let mut writer = Writer::new(body);
    for (i, node) in body.nodes.iter().enumerate() {
        if plan.gone.contains(&i) {
            continue;
        }
        let mut node = node.clone();
        let layer = plan.layers.get(&i);
        if let Some(layer) = layer {
            let (x, bytes) = match plan.whole.get(&layer.x) {
                Some(bytes) => (layer.x, *bytes),
                None => {
                    let bytes = layer.input(ranges);
                    (part(&mut writer, layer.x, bytes)?, bytes)
                }
            };
            node.inputs[0] = Some(x);
            operands(&mut writer, options.per_channel, layer, &mut node.inputs, bytes)?;
            if layer.tail.is_some_and(|tail| plan.gone.contains(&tail)) {
                node.outputs[0] = Some(layer.y);
            }
        }
        let made = node.outputs.first().copied().flatten();
        let Some((id, bytes)) = made.and_then(|id| Some((id, *plan.whole.get(&id)?))) else {
            writer.nodes.push(node);
            continue;
        };
        let real = writer.like(id, "real", ElementType::F32);
        node.outputs[0] = Some(real);
        writer.nodes.push(node);
        writer.rounded(real, id, bytes)?;
    }
    Ok(Graph {
        body: writer.done(),
        ..graph.clone()
    })
}

fn plan(body: &Body, layers: &[Layer], ranges: &Ranges) -> Plan {
    let seen = Seen::new(body);
    let by_node: HashMap<usize, Layer> = layers.iter().map(|layer| (layer.node, layer.clone())).collect();
    let mut whole = HashMap::new();
    let mut gone = HashSet::new();
    for layer in layers {
        let Some(&bytes) = ranges.get(&layer.y) else { continue };
        if layer.op != "Conv" && !leads_to_layers(body, &seen, &by_node, layer.y) {
            continue;
        }
        whole.insert(layer.y, bytes);
        gone.extend(layer.tail.filter(|&tail| {
            let step = f64::from(bytes.scale) / 2.0;
            let [low, high] = bytes.range();
            bounds(body, &body.nodes[tail]).is_some_and(|[least, most]| low >= least - step && high <= most + step)
        }));
    }
    for layer in layers {
        // Goes back over ops that move numbers, to a result that is quantized.
        let mut path = Vec::new();
        let mut at = layer.x;
        let found = loop {
            if let Some(bytes) = whole.get(&at) {
                break Some(*bytes);
            }
            let Some(&maker) = seen.makers.get(&at).filter(|maker| moves(body, **maker)) else {
                break None;
            };
            path.push(at);
            match body.nodes[maker].inputs.first() {
                Some(Some(from)) => at = *from,
                _ => break None,
            }
        };
        if let Some(bytes) = found {
            whole.extend(path.into_iter().map(|id| (id, bytes)));
        }
    }
    Plan {
        whole,
        layers: by_node,
        gone,
    }
}

/// The encodings of results of layers that learned ranges: those of the layers that read a result, if they agree and
/// there are no other readers.
pub(super) fn learned(body: &Body, layers: &[Layer]) -> Ranges {
    let seen = Seen::new(body);
    let by_node: HashMap<usize, Layer> = layers.iter().map(|layer| (layer.node, layer.clone())).collect();
    let mut ranges = Ranges::new();
    for layer in layers
        .iter()
        .filter(|layer| leads_to_layers(body, &seen, &by_node, layer.y))
    {
        let mut found = Vec::new();
        let mut ahead = vec![layer.y];
        while let Some(id) = ahead.pop() {
            for reader in seen.readers.get(&id).into_iter().flatten() {
                match by_node.get(reader) {
                    Some(next) => found.extend(next.learned.as_ref().map(|learned| learned.x)),
                    None => ahead.extend(body.nodes[*reader].outputs.first().copied().flatten()),
                }
            }
        }
        if let [first, others @ ..] = found.as_slice()
            && others.iter().all(|other| other == first)
        {
            ranges.insert(layer.y, *first);
        }
    }
    ranges
}

/// Whether an op only moves numbers and has one output.
fn moves(body: &Body, node: usize) -> bool {
    let node = &body.nodes[node];
    node.domain.is_empty() && MOVES.contains(&node.op_type.as_str()) && node.outputs.len() == 1
}

/// Whether a value is only read by layers, and by ops that move it to layers.
fn leads_to_layers(body: &Body, seen: &Seen<'_>, layers: &HashMap<usize, Layer>, id: ValueId) -> bool {
    let Some(readers) = seen.readers.get(&id).filter(|_| !body.outputs.contains(&id)) else {
        return false;
    };
    readers.iter().all(|reader| {
        if layers.get(reader).is_some_and(|layer| layer.x == id) {
            return true;
        }
        let moved = body.nodes[*reader].outputs.first().copied().flatten();
        let moved = moved.filter(|_| moves(body, *reader) && body.nodes[*reader].inputs.first() == Some(&Some(id)));
        moved.is_some_and(|moved| leads_to_layers(body, seen, layers, moved))
    })
}

/// A value quantized and dequantized, only for layers.
fn part(writer: &mut Writer, x: ValueId, bytes: Bytes) -> Result<ValueId> {
    // Layers that learned separate ranges may each quantize a value differently.
    let made = writer.once(x, &format!("rounded {bytes:?}"), |writer| {
        let rounded = writer.like(x, "rounded", ElementType::F32);
        writer.rounded(x, rounded, bytes)?;
        Ok(vec![rounded])
    })?;
    Ok(made[0])
}

/// Replaces the f32 weight, and the f32 bias (with the scale of the products), by quantized ones.
fn operands(
    writer: &mut Writer,
    per_channel: bool,
    layer: &Layer,
    inputs: &mut [Option<ValueId>],
    x: Bytes,
) -> Result<()> {
    let Some(weight) = writer.weight(layer, per_channel, Some(x.scale))? else {
        return Ok(());
    };
    let count = weight.scales.len();
    // The bias may require larger scales; then the same weight has another byte form.
    let key = format!("{} {:?}", layer.axis, weight.scales);
    let made = writer.once(layer.weight, &key, |writer| {
        let [scale, zero] = weight.literals()?;
        let of = layer.weight;
        let numbers = writer.constant(of, "quantized", weight.numbers.clone());
        let [scale, zero] = [("scale", scale), ("zero_point", zero)].map(|(word, x)| writer.constant(of, word, x));
        let back = writer.like(of, "dequantized", ElementType::F32);
        writer.node(
            "DequantizeLinear",
            &[numbers, scale, zero],
            &[back],
            along(layer.axis, count),
        );
        Ok(vec![back])
    })?;
    inputs[1] = made.first().copied();
    let Some(id) = layer.bias else { return Ok(()) };
    let Some(bias) = writer.body.initializer(id).map(|bias| bias.tensor.host().clone()) else {
        return Ok(());
    };
    let [numbers, scale]: [Literal; 2] = weight.bias(&bias, x.scale)?;
    let numbers = writer.constant(id, "quantized", numbers);
    let scale = writer.constant(id, "scale", scale);
    let back = writer.like(id, "dequantized", ElementType::F32);
    writer.node("DequantizeLinear", &[numbers, scale], &[back], along(0, count));
    inputs[2] = Some(back);
    Ok(())
}
