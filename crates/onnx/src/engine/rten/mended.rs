//! Ops that RTen computes differently from ONNX, rewritten in a form that it computes correctly.

use std::sync::Arc;

use polygrad_core::{HostTensor, Result, Shape};

use crate::graph::{Attribute, Body, Graph, Node, ValueId};

/// From this value on, Softplus returns its argument in f32. RTen's own is infinite above 88.
const LARGE: f32 = 30.0;

/// The first opset that has Where.
const OPSET: i64 = 9;

/// The graph in which Softplus returns its argument if that is large. `None` if the graph has no Softplus.
///
/// # Errors
/// If the limit cannot be made a tensor.
pub(super) fn mended(graph: &Graph) -> Result<Option<Graph>> {
    if graph.opsets.get("").is_none_or(|&opset| opset < OPSET) {
        return Ok(None);
    }
    let mut mended = graph.clone();
    let mut count = mend(&mut mended.body)?;
    for function in &mut mended.functions {
        count += mend(&mut function.body)?;
    }
    Ok((count > 0).then_some(mended))
}

/// Returns how many nodes of a body and of the bodies nested in it were rewritten.
fn mend(body: &mut Body) -> Result<usize> {
    let (mut nodes, mut count) = (Vec::with_capacity(body.nodes.len()), 0);
    for mut node in std::mem::take(&mut body.nodes) {
        for (_, attribute) in &mut node.attributes {
            match attribute {
                Attribute::Body(inner) => count += mend(Arc::make_mut(inner))?,
                Attribute::Bodies(inner) => {
                    for body in inner {
                        count += mend(Arc::make_mut(body))?;
                    }
                }
                _ => {}
            }
        }
        match (node.op_type.as_str(), &node.inputs[..], &node.outputs[..]) {
            ("Softplus", &[Some(x)], &[Some(y)]) if node.domain.is_empty() => {
                count += 1;
                nodes.extend(softplus(body, node.name, x, y)?);
            }
            _ => nodes.push(node),
        }
    }
    body.nodes = nodes;
    Ok(count)
}

fn softplus(body: &mut Body, name: String, x: ValueId, y: ValueId) -> Result<[Node; 4]> {
    let mut value = |what: &str| {
        let name = format!("{}/{what}", body.name_of(y));
        body.add_value(name, None)
    };
    let [limit, is_large, small] = ["limit", "is_large", "softplus"].map(&mut value);
    let node = |op: &str, inputs: &[ValueId], output| Node {
        name: name.clone(),
        op_type: op.into(),
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(output)],
        ..Node::default()
    };
    let large = HostTensor::new(Shape::SCALAR, vec![LARGE])?;
    Ok([
        Node {
            attributes: vec![("value".into(), Attribute::Tensor(large.into()))],
            ..node("Constant", &[], limit)
        },
        node("Greater", &[x, limit], is_large),
        node("Softplus", &[x], small),
        node("Where", &[is_large, x, small], y),
    ])
}
