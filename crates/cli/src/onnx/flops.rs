//! The number of operations of a graph.

use polygrad_onnx::graph::{Attribute, Body, Node, TensorType, ValueId};

use super::extents::Extents;

/// Floating-point operations of a node, counting a multiplication with a following addition as two; `None` if a shape
/// is unknown. Matrix products, convolutions and recurrent layers are counted exactly, ops that move values as zero,
/// and others as one for each output value.
pub(super) fn of(node: &Node, body: &Body, extents: &Extents) -> Option<f64> {
    let shape = |id: Option<ValueId>| -> Option<Vec<usize>> {
        let id = id?;
        if let Some(initializer) = body.initializer(id) {
            return Some(initializer.tensor.host().shape().to_vec());
        }
        let ty = body.value(id).ty.as_ref()?.as_tensor();
        ty.and_then(|ty: &TensorType| extents.shape(ty))
    };
    let input = |i: usize| shape(node.inputs.get(i).copied().flatten());
    let output = || shape(node.outputs.iter().copied().flatten().next());
    let number = |name: &str| match node.attribute(name) {
        Some(Attribute::Int(value)) => *value,
        _ => 0,
    };
    match node.op_type.as_str() {
        "MatMul" => Some(2.0 * product(&output()?) * *input(0)?.last()? as f64),
        "Gemm" => {
            let a = input(0)?;
            let inner = *a.get(if number("transA") == 0 { 1 } else { 0 })?;
            Some(2.0 * product(&output()?) * inner as f64)
        }
        // Each output element takes one product for each weight of its channel.
        "Conv" => Some(2.0 * product(&output()?) * product(input(1)?.get(1..)?)),
        // Each input element takes one product for each weight of its channel.
        "ConvTranspose" => Some(2.0 * product(&input(0)?) * product(input(1)?.get(1..)?)),
        "LSTM" | "GRU" | "RNN" => {
            let (x, w, r) = (input(0)?, input(1)?, input(2)?);
            let steps = product(x.get(..2)?);
            Some(2.0 * steps * (product(&w) + product(&r)))
        }
        "Attention" => {
            let (q, k, v) = (input(0)?, input(1)?, input(2)?);
            let [.., queries, _] = q[..] else { return None };
            let [.., keys, _] = k[..] else { return None };
            Some(2.0 * (product(&q) * keys as f64 + product(&v) * queries as f64))
        }
        "Constant" | "Reshape" | "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" | "Shape"
        | "Concat" | "Split" | "Slice" | "Gather" | "Expand" | "Cast" | "Range" => Some(0.0),
        _ => Some(product(&output()?)),
    }
}

fn product(dims: &[usize]) -> f64 {
    dims.iter().map(|&extent| extent as f64).product()
}

#[cfg(test)]
mod tests {
    use polygrad_onnx::graph::{Dim, ElementType, ValueType};

    use super::*;

    fn count(op: &str, inputs: &[&[usize]], output: &[usize]) -> Option<f64> {
        let mut body = Body::default();
        let mut value = |dims: &[usize]| {
            let dims = dims.iter().map(|&extent| Dim::Fixed(extent)).collect();
            Some(body.add_value("", Some(ValueType::tensor(ElementType::F32, dims))))
        };
        let node = Node {
            op_type: op.into(),
            inputs: inputs.iter().map(|dims| value(dims)).collect(),
            outputs: vec![value(output)],
            ..Node::default()
        };
        of(&node, &body, &Extents::default())
    }

    #[test]
    fn products_count_twice_and_movement_nothing() {
        assert_eq!(count("MatMul", &[&[2, 3], &[3, 4]], &[2, 4]), Some(48.0));
        assert_eq!(count("Gemm", &[&[2, 3], &[3, 4]], &[2, 4]), Some(48.0));
        assert_eq!(
            count("Conv", &[&[1, 3, 8, 8], &[16, 3, 3, 3]], &[1, 16, 8, 8]),
            Some(2.0 * 1024.0 * 27.0)
        );
        assert_eq!(
            count("LSTM", &[&[5, 2, 3], &[1, 16, 3], &[1, 16, 4]], &[5, 1, 2, 4]),
            Some(20.0 * (48.0 + 64.0))
        );
        assert_eq!(count("Relu", &[&[2, 3]], &[2, 3]), Some(6.0));
        assert_eq!(count("Reshape", &[&[2, 3], &[1]], &[6]), Some(0.0));
    }
}
