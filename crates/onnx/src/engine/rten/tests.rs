//! Each known deviation has a graph that RTen still computes differently. A row whose graph is now computed correctly
//! has to be removed.

use polygrad_core::{Element, HostTensor, Shape};

use super::Loaded;
use super::known::{DEVIATIONS, refuse};
use crate::engine::{Session, Source};
use crate::graph::{Attribute, Body, Dim, ElementType, Graph, Literal, Node, ValueType};
use crate::import::Options;

/// A graph, its inputs, and the result that ONNX specifies.
struct Example {
    graph: Graph,
    inputs: Vec<(String, Literal)>,
    right: Vec<f64>,
    rank: usize,
}

fn host<T: Element>(dims: &[usize], values: &[T]) -> Literal {
    HostTensor::new(Shape::new(dims).unwrap(), values.to_vec())
        .unwrap()
        .into()
}

fn of(element: ElementType, dims: &[usize], values: &[i64]) -> Literal {
    let host = HostTensor::new(Shape::new(dims).unwrap(), values.to_vec()).unwrap();
    Literal::new(element, host.cast(element.dtype().unwrap())).unwrap()
}

/// An operand of an example.
enum Operand {
    Input(Literal),
    Constant(Literal),
    Absent,
}

use Operand::{Absent, Constant, Input};

/// One node, followed by one for each further op.
fn example(
    opset: i64,
    ops: &[(&str, &[(&str, Attribute)])],
    operands: Vec<Operand>,
    output: (ElementType, usize),
    right: &[f64],
) -> Example {
    let mut body = Body::default();
    let (mut inputs, mut given) = (Vec::new(), Vec::new());
    for (i, operand) in operands.into_iter().enumerate() {
        let name = format!("x{i}");
        inputs.push(match operand {
            Absent => None,
            Constant(literal) => Some(body.add_initializer(name, literal)),
            Input(literal) => {
                let dims = literal
                    .host()
                    .shape()
                    .iter()
                    .map(|&extent| Dim::Fixed(extent))
                    .collect();
                let id = body.add_value(&*name, Some(ValueType::tensor(literal.element(), dims)));
                body.inputs.push(id);
                given.push((name, literal));
                Some(id)
            }
        });
    }
    for (i, (op, attributes)) in ops.iter().enumerate() {
        let ty = ValueType::tensor(output.0, vec![Dim::Unknown; output.1]);
        let y = body.add_value(format!("y{i}"), (i + 1 == ops.len()).then_some(ty));
        body.nodes.push(Node {
            name: format!("node {i}"),
            op_type: (*op).into(),
            inputs: std::mem::replace(&mut inputs, vec![Some(y)]),
            outputs: vec![Some(y)],
            attributes: attributes
                .iter()
                .map(|(name, value)| ((*name).into(), value.clone()))
                .collect(),
            ..Node::default()
        });
        body.outputs = vec![y];
    }
    Example {
        graph: Graph {
            opsets: [(String::new(), opset)].into(),
            body,
            ..Graph::default()
        },
        inputs: given,
        right: right.to_vec(),
        rank: output.1,
    }
}

/// Two numbers, each repeated twice along a new axis that Reshape then merges.
fn repeated(axes: &[i64], shape: &[i64], right: &[f64]) -> Example {
    let x = Input(host(&[2], &[1f32, 2.0]));
    let mut example = example(
        20,
        &[("Unsqueeze", &[])],
        vec![x, Constant(host(&[axes.len()], axes))],
        (ElementType::F32, 1),
        right,
    );
    let body = &mut example.graph.body;
    let y = body.outputs[0];
    body.values[y.index()].ty = None;
    let mut last = y;
    for (i, (op, numbers)) in [("Expand", shape), ("Reshape", &[4])].into_iter().enumerate() {
        let operand = body.add_initializer(format!("c{i}"), host(&[numbers.len()], numbers));
        let ty = ValueType::tensor(ElementType::F32, vec![Dim::Fixed(4)]);
        let made = body.add_value(format!("z{i}"), (op == "Reshape").then_some(ty));
        body.nodes.push(Node {
            name: op.into(),
            op_type: op.into(),
            inputs: vec![Some(last), Some(operand)],
            outputs: vec![Some(made)],
            ..Node::default()
        });
        last = made;
    }
    body.outputs = vec![last];
    example
}

/// In the order of the rows. The values are ONNX Runtime's.
fn examples() -> Vec<Example> {
    use ElementType::{Bool, F32, I32, I64};
    let int = |value: i64| Attribute::Int(value);
    let ints = |values: &[i64]| Attribute::Ints(values.to_vec());
    let text = |text: &str| Attribute::String(text.into());
    let row = |values: &[f32]| host(&[1, 1, 1, values.len()], values);
    let image = [0f32, 0.0, 1.0, 0.0].repeat(4);
    let cubic = [
        0.0,
        -0.03515625,
        -0.10546875,
        0.26171875,
        0.87890625,
        0.87890625,
        0.26171875,
        -0.10546875,
    ];
    vec![
        example(
            20,
            &[(
                "Conv",
                &[
                    ("auto_pad", text("SAME_LOWER")),
                    ("kernel_shape", ints(&[1, 2])),
                    ("strides", ints(&[1, 1])),
                ],
            )],
            vec![Input(row(&[1.0, 2.0, 3.0])), Constant(row(&[1.0, 0.0]))],
            (F32, 4),
            &[0.0, 1.0, 2.0],
        ),
        example(
            11,
            &[("Softmax", &[])],
            vec![Input(host(&[1, 2, 2], &[0f32; 4]))],
            (F32, 3),
            &[0.25; 4],
        ),
        example(
            20,
            &[("LSTM", &[("hidden_size", int(1))])],
            vec![
                Input(host(&[2, 1, 1], &[1f32; 2])),
                Constant(host(&[1, 4, 1], &[1f32; 4])),
                Constant(host(&[1, 4, 1], &[1f32; 4])),
                Absent,
                Constant(host(&[1], &[1i32])),
            ],
            (F32, 4),
            &[0.369_606_38, 0.0],
        ),
        example(
            20,
            &[("Resize", &[("mode", text("cubic"))])],
            vec![
                Input(host(&[1, 1, 4, 4], &image)),
                Absent,
                Constant(host(&[4], &[1f32, 1.0, 1.0, 2.0])),
            ],
            (F32, 4),
            &cubic.repeat(4),
        ),
        example(
            20,
            &[("ArgMax", &[])],
            vec![Input(host(&[3, 1], &[1f32, 1.0, 0.0]))],
            (I64, 2),
            &[0.0],
        ),
        example(
            20,
            &[("NonMaxSuppression", &[])],
            vec![
                Input(host(&[1, 1, 4], &[0f32, 0.0, 1.0, 1.0])),
                Input(host(&[1, 2, 1], &[0.5f32, 0.6])),
                Constant(host(&[1], &[2i64])),
                Constant(host(&[1], &[0.5f32])),
                Constant(host(&[1], &[0.1f32])),
            ],
            (I64, 2),
            &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        ),
        example(
            20,
            &[("MatMulInteger", &[])],
            vec![
                Input(of(ElementType::U8, &[2, 4], &[1, 2, 3, 4, 5, 6, 7, 8])),
                Constant(of(ElementType::I8, &[4, 4], &(-8..8).collect::<Vec<_>>())),
                Constant(of(ElementType::U8, &[], &[0])),
                Constant(of(ElementType::I8, &[], &[3])),
            ],
            (I32, 2),
            &[-30.0, -20.0, -10.0, 0.0, -110.0, -84.0, -58.0, -32.0],
        ),
        example(
            20,
            &[
                ("Cast", &[("to", int(Bool.number().into()))]),
                ("Cast", &[("to", int(F32.number().into()))]),
            ],
            vec![Input(host(&[2], &[0.5f32, 2.0]))],
            (F32, 1),
            &[1.0, 1.0],
        ),
        example(
            20,
            &[("Sign", &[])],
            vec![Input(host(&[2], &[0f32, -2.0]))],
            (F32, 1),
            &[0.0, -1.0],
        ),
        example(
            20,
            &[("MatMul", &[])],
            vec![
                Input(host(&[1, 2, 2, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])),
                Input(host(&[2], &[1f32, 1.0])),
            ],
            (F32, 3),
            &[3.0, 7.0, 11.0, 15.0],
        ),
        example(
            20,
            &[("ReduceMax", &[])],
            vec![Input(of(Bool, &[2, 0], &[])), Constant(host(&[1], &[1i64]))],
            (Bool, 2),
            &[0.0, 0.0],
        ),
        example(
            20,
            &[(
                "Resize",
                &[
                    ("mode", text("linear")),
                    ("coordinate_transformation_mode", text("align_corners")),
                ],
            )],
            vec![
                Input(host(&[1, 1, 2, 4], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])),
                Absent,
                Constant(host(&[4], &[1f32, 1.0, 0.6, 0.6])),
            ],
            (F32, 4),
            &[1.0, 3.142_857],
        ),
        repeated(&[0, 1], &[1, 2, 1], &[1.0, 2.0, 1.0, 2.0]),
        example(
            20,
            &[("Div", &[])],
            vec![Input(host(&[], &[3f32])), Input(host(&[1], &[2f32]))],
            (F32, 1),
            &[1.5],
        ),
        example(
            8,
            &[("Softplus", &[])],
            vec![Input(host(&[2], &[0f32, 100.0]))],
            (F32, 1),
            &[std::f64::consts::LN_2, 100.0],
        ),
        example(
            20,
            &[("Relu", &[])],
            vec![Input(host(&[2], &[f32::NAN, -1.0]))],
            (F32, 1),
            &[f64::NAN, 0.0],
        ),
    ]
}

/// RTen's result, even if the graph has a known deviation.
fn computed(example: &Example) -> (usize, Vec<f64>) {
    let bytes = example.graph.to_bytes().unwrap();
    let loaded = Loaded::load(Source::Bytes(bytes), &example.graph, Options::default()).unwrap();
    let outputs = loaded.run(&example.inputs).unwrap();
    let host = outputs[0].host();
    (host.shape().rank(), host.to_f64_vec())
}

#[test]
fn each_row_names_what_is_still_computed_otherwise() {
    let examples = examples();
    assert_eq!(
        examples.len(),
        DEVIATIONS.len(),
        "a row without an example, or one without a row"
    );
    for (row, example) in DEVIATIONS.iter().zip(&examples) {
        let inputs = example
            .inputs
            .iter()
            .map(|(name, literal)| (name.as_str(), literal.host()));
        let refused = refuse(&example.graph).and_then(|nan| nan.check(inputs)).unwrap_err();
        assert!(refused.to_string().contains(row.what), "{refused}");
        assert!(refused.hint().unwrap().contains("native"), "{refused}");
        let (rank, found) = computed(example);
        let same = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5 || (a.is_nan() && b.is_nan());
        let is_right =
            rank == example.rank && found.len() == example.right.len() && found.iter().zip(&example.right).all(same);
        assert!(
            !is_right,
            "RTen computes this right now, so that the row can go: {}",
            row.what
        );
    }
}

#[test]
fn softplus_of_large_numbers_is_finite() {
    let (infinite, nan) = (f64::INFINITY, f64::NAN);
    let x = [-100f32, 0.0, 29.0, 31.0, 100.0, f32::INFINITY, f32::NAN];
    let right = [0.0, std::f64::consts::LN_2, 29.0, 31.0, 100.0, infinite, nan];
    let once = example(
        20,
        &[("Softplus", &[])],
        vec![Input(host(&[7], &x))],
        (ElementType::F32, 1),
        &right,
    );
    let twice = [("Softplus", &[][..]), ("Softplus", &[])];
    let twice = example(20, &twice, vec![Input(host(&[7], &x))], (ElementType::F32, 1), &[]);
    for (example, offset) in [(once, 0.0), (twice, std::f64::consts::LN_2)] {
        let source = Source::Bytes(example.graph.to_bytes().unwrap());
        let loaded = Loaded::open(source, &example.graph, Options::default()).unwrap();
        let found = loaded.run(&example.inputs).unwrap()[0].host().to_f64_vec();
        assert!((found[0] - offset).abs() < 1e-6, "{found:?}");
        for (found, right) in found.iter().zip(right).skip(2) {
            assert!(
                (found - right).abs() < 1e-5 || found.to_bits() == right.to_bits() || found.is_nan() && right.is_nan()
            );
        }
    }
}

#[test]
fn what_is_computed_right_is_not_refused() {
    let int = |value: i64| Attribute::Int(value);
    let rows = [
        vec![Input(host(&[2, 3], &[0f32; 6]))],
        vec![Input(of(ElementType::I64, &[2], &[0, 2]))],
    ];
    let [matrix, mask] = rows;
    let last = example(11, &[("Softmax", &[])], matrix, (ElementType::F32, 2), &[1.0 / 3.0; 6]);
    let bool = [("to", int(ElementType::Bool.number().into()))];
    let truth = example(
        20,
        &[("Cast", &bool), ("Not", &[])],
        mask,
        (ElementType::Bool, 1),
        &[1.0, 0.0],
    );
    let each = repeated(&[1], &[1, 2], &[1.0, 1.0, 2.0, 2.0]);
    for example in [last, truth, each] {
        assert!(refuse(&example.graph).is_ok());
        let near = computed(&example)
            .1
            .iter()
            .zip(&example.right)
            .all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near, "{:?}", example.graph.body.nodes);
    }
}
