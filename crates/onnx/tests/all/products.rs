//! Integer matrix products, and factors of 0.

use polygrad_core::DType;
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options};
use polygrad_tensor::{Device, Tensor};

fn device() -> Device {
    Device::<Cpu>::default().into_any()
}

fn call(op: &str, inputs: &[ValueId], output: ValueId) -> Node {
    Node {
        op_type: op.into(),
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(output)],
        ..Node::default()
    }
}

/// The result of one node on operands that each go through a Cast first.
fn computed(node: &str, attributes: &[(&str, Attribute)], operands: &[(ElementType, Tensor)]) -> Tensor {
    let mut body = Body::default();
    let mut inputs = Vec::new();
    for (i, (element, operand)) in operands.iter().enumerate() {
        let held = operand.dtype();
        let own = [DType::F32, DType::F64, DType::I32, DType::I64]
            .into_iter()
            .position(|dtype| dtype == held);
        let from = [ElementType::F32, ElementType::F64, ElementType::I32, ElementType::I64][own.unwrap()];
        let dims = operand.dims().into_iter().map(Dim::Fixed).collect();
        let x = body.add_value(format!("x{i}"), Some(ValueType::tensor(from, dims)));
        let cast = body.add_value(format!("cast{i}"), None);
        let mut convert = call("Cast", &[x], cast);
        convert.attributes = vec![("to".into(), Attribute::Int(element.number().into()))];
        body.nodes.push(convert);
        body.inputs.push(x);
        inputs.push(cast);
    }
    let y = body.add_value("y", None);
    let mut last = call(node, &inputs, y);
    last.attributes = attributes
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    body.nodes.push(last);
    body.outputs = vec![y];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let model = OnnxModel::from_graph(&graph, &device(), Options::default()).unwrap();
    let operands: Vec<Tensor> = operands.iter().map(|(_, operand)| operand.clone()).collect();
    model.forward(&operands).unwrap().tensor(0).unwrap().clone()
}

/// As in ONNX Runtime.
#[test]
fn products_of_integers_wrap_in_their_own_width() {
    let whole = |values: &[i64], dims: [usize; 2]| Tensor::from_slice(values, dims, &device()).unwrap();
    let (row, column) = (whole(&[65_536, 1], [1, 2]), whole(&[65_536, 5], [2, 1]));
    let equation = [("equation", Attribute::String("ij,jk->ik".into()))];
    for (node, attributes) in [("MatMul", &[][..]), ("Gemm", &[]), ("Einsum", &equation)] {
        let of = |element, a: &Tensor, b: &Tensor| {
            let y = computed(node, attributes, &[(element, a.clone()), (element, b.clone())]);
            y.to_dtype(DType::I64).unwrap().to_vec::<i64>().unwrap()
        };
        assert_eq!(of(ElementType::I32, &row, &column), [5], "{node}");
        assert_eq!(of(ElementType::U32, &row, &column), [5], "{node}");
        assert_eq!(of(ElementType::I64, &row, &column), [(1 << 32) + 5], "{node}");
        let wild = whole(&[6_364_136_223_846_793_005, 1_442_695_040_888_963_407], [1, 2]);
        let small = whole(&[3, 7], [2, 1]);
        assert_eq!(
            of(ElementType::I64, &wild, &small),
            [-7_702_214_189_655_980_368],
            "{node}"
        );
        let low = 6_364_136_223_846_793_005i64 as u32;
        let rest = 1_442_695_040_888_963_407i64 as u32;
        let wanted = low.wrapping_mul(3).wrapping_add(rest.wrapping_mul(7));
        assert_eq!(of(ElementType::U32, &wild, &small), [i64::from(wanted)], "{node}");
    }
    // Integer factors wrap too.
    let scaled = [("alpha", Attribute::Float(3.0)), ("beta", Attribute::Float(-2.0))];
    let bias = whole(&[1 << 60], [1, 1]);
    let operands = [row, column, bias].map(|x| (ElementType::I64, x));
    let y = computed("Gemm", &scaled, &operands).to_vec::<i64>().unwrap();
    assert_eq!(y, [3 * ((1i64 << 32) + 5) - (1 << 61)]);
}

#[test]
fn gemm_ignores_what_it_multiplies_by_zero() {
    let matrix = |values: &[f32]| {
        (
            ElementType::F32,
            Tensor::from_slice(values, [1, values.len()], &device()).unwrap(),
        )
    };
    let operands = [matrix(&[2.0]), matrix(&[3.0, 4.0]), matrix(&[f32::NAN, f32::INFINITY])];
    let y = computed("Gemm", &[("beta", Attribute::Float(0.0))], &operands);
    assert_eq!(y.to_vec::<f32>().unwrap(), [6.0, 8.0]);
}
