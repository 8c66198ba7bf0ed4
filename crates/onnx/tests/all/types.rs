//! Element types: outputs have the declared type, and casts treat all integer types alike.

use polygrad_core::{Element, ErrorKind, HostTensor, Result, Shape};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Literal, Node, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options, Outputs, Value};
use polygrad_tensor::{Device, Tensor};

fn host<T: Element>(dims: &[usize], values: &[T]) -> HostTensor {
    HostTensor::new(Shape::new(dims).unwrap(), values.to_vec()).unwrap()
}

fn of(element: ElementType, dims: &[usize], values: &[i64]) -> Literal {
    Literal::new(element, host(dims, values).cast(element.dtype().unwrap())).unwrap()
}

/// One node of opset 21, whose `outputs` are those of the model, which is not folded.
fn node(op: &str, inputs: &[Literal], attributes: &[(&str, Attribute)], outputs: usize) -> Graph {
    let mut body = Body::default();
    let inputs = inputs.iter().enumerate().map(|(i, literal)| {
        let dims = literal
            .host()
            .shape()
            .iter()
            .map(|&extent| Dim::Fixed(extent))
            .collect();
        let id = body.add_value(format!("x{i}"), Some(ValueType::tensor(literal.element(), dims)));
        body.inputs.push(id);
        Some(id)
    });
    let inputs: Vec<Option<ValueId>> = inputs.collect();
    body.outputs = (0..outputs).map(|i| body.add_value(format!("y{i}"), None)).collect();
    body.nodes.push(Node {
        name: "the node".into(),
        op_type: op.into(),
        inputs,
        outputs: body.outputs.iter().copied().map(Some).collect(),
        attributes: attributes
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        ..Node::default()
    });
    Graph {
        opsets: [(String::new(), 21)].into(),
        body,
        ..Graph::default()
    }
}

fn open(graph: &Graph) -> OnnxModel {
    OnnxModel::from_graph(graph, &Device::<Cpu>::default().into_any(), Options::default()).unwrap()
}

fn run(op: &str, inputs: &[Literal], attributes: &[(&str, Attribute)], outputs: usize) -> Result<Outputs> {
    let graph = node(op, inputs, attributes, outputs);
    open(&graph).run_ordered(inputs.iter().cloned().map(Value::from))
}

/// The values are those of ONNX Runtime 1.32 and PyTorch 2.13 on x86.
#[test]
fn casts_out_of_range_are_alike_for_all_integer_types() {
    use ElementType::*;
    let floats = [
        1.7,
        -1.7,
        300.0,
        200.0,
        -129.0,
        70000.0,
        3e9,
        -3e9,
        5e9,
        1e19,
        f32::NAN,
        f32::INFINITY,
    ];
    let integers = [
        300i64,
        -1,
        128,
        -129,
        70000,
        1 << 31,
        (1 << 32) + 5,
        -(1 << 31) - 1,
        1 << 62,
    ];
    let (i32_min, i64_min) = (i64::from(i32::MIN), i64::MIN);
    let cases: [(ElementType, [i64; 12], [i64; 9]); 7] = [
        (
            U8,
            [1, 255, 44, 200, 127, 112, 0, 0, 0, 0, 0, 0],
            [44, 255, 128, 127, 112, 0, 5, 255, 0],
        ),
        (
            I8,
            [1, -1, 44, -56, 127, 112, 0, 0, 0, 0, 0, 0],
            [44, -1, -128, 127, 112, 0, 5, -1, 0],
        ),
        (
            U16,
            [1, 65535, 300, 200, 65407, 4464, 0, 0, 0, 0, 0, 0],
            [300, 65535, 128, 65407, 4464, 0, 5, 65535, 0],
        ),
        (
            I16,
            [1, -1, 300, 200, -129, 4464, 0, 0, 0, 0, 0, 0],
            [300, -1, 128, -129, 4464, 0, 5, -1, 0],
        ),
        (
            I32,
            [
                1, -1, 300, 200, -129, 70000, i32_min, i32_min, i32_min, i32_min, i32_min, i32_min,
            ],
            [300, -1, 128, -129, 70000, i32_min, 5, i64::from(i32::MAX), 0],
        ),
        (
            U32,
            [
                1,
                4294967295,
                300,
                200,
                4294967167,
                70000,
                3_000_000_000,
                1 << 31,
                0,
                0,
                1 << 31,
                0,
            ],
            [
                300,
                4294967295,
                128,
                4294967167,
                70000,
                1 << 31,
                5,
                i64::from(i32::MAX),
                0,
            ],
        ),
        (
            I64,
            [
                1,
                -1,
                300,
                200,
                -129,
                70000,
                3_000_000_000,
                -3_000_000_000,
                5_000_000_000,
                i64_min,
                i64_min,
                i64_min,
            ],
            integers,
        ),
    ];
    for (to, from_floats, from_integers) in cases {
        let cast = |x: HostTensor| {
            let to = [("to", Attribute::Int(to.number().into()))];
            let y = run("Cast", &[x.into()], &to, 1)
                .unwrap()
                .get("y0")
                .unwrap()
                .literal()
                .unwrap();
            (
                y.element(),
                y.host().cast(polygrad_core::DType::I64).to_vec::<i64>().unwrap(),
            )
        };
        assert_eq!(cast(host(&[12], &floats)), (to, from_floats.to_vec()));
        assert_eq!(cast(host(&[12], &floats.map(f64::from))), (to, from_floats.to_vec()));
        assert_eq!(cast(host(&[9], &integers)), (to, from_integers.to_vec()));
        let (_, found) = cast(host(&[12], &floats).cast(polygrad_core::DType::F16));
        assert_eq!(found[..5], from_floats[..5], "{to} of f16");
    }
}

/// An op, its operands, its attributes, and the number of its results.
type Case = (&'static str, Vec<Literal>, Vec<(&'static str, Attribute)>, usize);

/// A new op that keeps its operands' type is added here.
#[test]
fn results_have_the_type_of_their_operands() {
    use ElementType::*;
    let indices = |dims: &[usize], values: &[i64]| Literal::from(host(dims, values));
    let ints = |values: &[i64]| Attribute::Ints(values.to_vec());
    for element in [I8, I16, U16, U32, U64] {
        let x = || of(element, &[2, 2], &[1, 2, 3, 4]);
        let image = || of(element, &[1, 1, 2, 2], &[1, 2, 3, 4]);
        let one = || of(element, &[], &[1]);
        let cases: Vec<Case> = vec![
            ("Identity", vec![x()], vec![], 1),
            ("Add", vec![x(), x()], vec![], 1),
            ("Sub", vec![x(), x()], vec![], 1),
            ("Mul", vec![x(), x()], vec![], 1),
            ("Div", vec![x(), x()], vec![], 1),
            ("Mod", vec![x(), x()], vec![], 1),
            ("Max", vec![x(), x()], vec![], 1),
            ("Min", vec![x(), x()], vec![], 1),
            ("Abs", vec![x()], vec![], 1),
            ("Sign", vec![x()], vec![], 1),
            ("Clip", vec![x(), one(), one()], vec![], 1),
            ("BitwiseAnd", vec![x(), x()], vec![], 1),
            ("BitwiseXor", vec![x(), x()], vec![], 1),
            (
                "Where",
                vec![host(&[2, 2], &[true, false, true, false]).into(), x(), x()],
                vec![],
                1,
            ),
            ("Reshape", vec![x(), indices(&[1], &[4])], vec![], 1),
            ("Transpose", vec![x()], vec![], 1),
            ("Flatten", vec![x()], vec![], 1),
            ("Squeeze", vec![image()], vec![], 1),
            ("Unsqueeze", vec![x(), indices(&[1], &[0])], vec![], 1),
            ("Expand", vec![x(), indices(&[3], &[2, 2, 2])], vec![], 1),
            ("Tile", vec![x(), indices(&[2], &[2, 1])], vec![], 1),
            ("Concat", vec![x(), x()], vec![("axis", Attribute::Int(0))], 1),
            ("Split", vec![x()], vec![("num_outputs", Attribute::Int(2))], 2),
            ("Slice", vec![x(), indices(&[1], &[0]), indices(&[1], &[1])], vec![], 1),
            ("Pad", vec![x(), indices(&[4], &[1, 0, 0, 1]), one()], vec![], 1),
            ("Gather", vec![x(), indices(&[1], &[1])], vec![], 1),
            ("GatherElements", vec![x(), indices(&[1, 2], &[1, 0])], vec![], 1),
            ("GatherND", vec![x(), indices(&[1, 1], &[1])], vec![], 1),
            (
                "ScatterElements",
                vec![x(), indices(&[1, 2], &[1, 0]), of(element, &[1, 2], &[7, 8])],
                vec![],
                1,
            ),
            (
                "ScatterND",
                vec![x(), indices(&[1, 1], &[1]), of(element, &[1, 2], &[7, 8])],
                vec![],
                1,
            ),
            ("ReduceMax", vec![x()], vec![], 1),
            ("ReduceMin", vec![x()], vec![], 1),
            ("ReduceSum", vec![x()], vec![], 1),
            ("CumSum", vec![x(), indices(&[], &[0])], vec![], 1),
            ("TopK", vec![x(), indices(&[1], &[1])], vec![], 1),
            ("Unique", vec![x()], vec![], 1),
            ("Compress", vec![x(), host(&[2], &[true, false]).into()], vec![], 1),
            ("Trilu", vec![x()], vec![], 1),
            ("ReverseSequence", vec![x(), indices(&[2], &[1, 2])], vec![], 1),
            (
                "DepthToSpace",
                vec![of(element, &[1, 4, 1, 1], &[1, 2, 3, 4])],
                vec![("blocksize", Attribute::Int(2))],
                1,
            ),
            ("SpaceToDepth", vec![image()], vec![("blocksize", Attribute::Int(2))], 1),
            ("CenterCropPad", vec![x(), indices(&[2], &[3, 1])], vec![], 1),
            (
                "Resize",
                vec![
                    image(),
                    host(&[0], &[0f32; 0]).into(),
                    host(&[4], &[1f32, 1.0, 2.0, 2.0]).into(),
                ],
                vec![],
                1,
            ),
            ("MaxPool", vec![image()], vec![("kernel_shape", ints(&[2, 2]))], 1),
            ("EyeLike", vec![x()], vec![], 1),
            (
                "OneHot",
                vec![indices(&[2], &[0, 1]), indices(&[], &[2]), of(element, &[2], &[0, 1])],
                vec![],
                1,
            ),
            (
                "ConstantOfShape",
                vec![indices(&[1], &[2])],
                vec![("value", Attribute::Tensor(of(element, &[1], &[3])))],
                1,
            ),
            ("Range", vec![one(), of(element, &[], &[5]), one()], vec![], 1),
        ];
        for (op, inputs, attributes, outputs) in cases {
            // ONNX does not have MaxPool for them.
            if op == "MaxPool" && element == U64 {
                continue;
            }
            let found = run(op, &inputs, &attributes, outputs).unwrap_or_else(|e| panic!("{op} of {element}: {e}"));
            for (name, value) in found
                .iter()
                .take(if op == "TopK" || op == "Unique" { 1 } else { outputs })
            {
                assert_eq!(value.element(), Some(element), "{op}, {name}");
                assert_eq!(value.literal().unwrap().element(), element, "{op}, {name}");
            }
        }
    }
}

#[test]
fn numbers_that_an_input_cannot_have_are_refused() {
    let device = Device::<Cpu>::default().into_any();
    let identity = |element| open(&node("Identity", &[of(element, &[2], &[0, 1])], &[], 1));
    let fails = |element: ElementType, values: HostTensor, says: &str| {
        for value in [
            values.clone().into(),
            Value::from(Tensor::from_host(values, &device).unwrap()),
        ] {
            let error = identity(element).run([("x0".to_owned(), value)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
            assert!(
                error.to_string().contains(says) && error.to_string().contains("x0"),
                "{error}"
            );
        }
    };
    fails(ElementType::I8, host(&[2], &[1i32, 300]), "300 is no int8");
    fails(ElementType::U16, host(&[2], &[1i32, -1]), "-1 is no uint16");
    fails(ElementType::U64, host(&[2], &[1i64, -5]), "-5 is no uint64");
    fails(ElementType::U4, host(&[2], &[1i32, 16]), "16 is no uint4");
    fails(ElementType::F8E4M3Fn, host(&[2], &[1f32, 1.01]), "is no float8e4m3fn");
    let value = Value::from(host(&[2], &[1f32, f32::NAN]));
    assert!(identity(ElementType::F8E4M3Fn).run([("x0".to_owned(), value)]).is_ok());
}

/// An initializer that is also an input is that input's default.
#[test]
fn an_input_with_a_default_is_given_or_left_out() {
    let x = Literal::from(host(&[2], &[1f32, 2.0]));
    let mut graph = node("Add", &[x.clone(), x], &[], 1);
    let w = graph.body.inputs[1];
    graph.body.initializers.push(polygrad_onnx::graph::Initializer {
        value: w,
        tensor: host(&[2], &[10f32, 20.0]).into(),
    });
    let model = open(&graph);
    assert_eq!(model.inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["x0"]);
    let optional: Vec<_> = model
        .optional_inputs()
        .map(|(name, _, default)| (name, default.host().to_f64_vec()))
        .collect();
    assert_eq!(optional, [("x1", vec![10.0, 20.0])]);
    let sum = |inputs: &[(&str, [f32; 2])]| {
        let inputs = inputs
            .iter()
            .map(|(name, values)| ((*name).to_owned(), host(&[2], values).into()));
        model
            .run(inputs)
            .map(|outputs| outputs.tensor(0).unwrap().to_vec::<f32>().unwrap())
    };
    assert_eq!(sum(&[("x0", [1.0, 2.0])]).unwrap(), [11.0, 22.0]);
    assert_eq!(sum(&[("x0", [1.0, 2.0]), ("x1", [0.5, 0.5])]).unwrap(), [1.5, 2.5]);
    let error = sum(&[("w", [0.0, 0.0]), ("x0", [0.0, 0.0])]).unwrap_err();
    assert_eq!(error.hint().unwrap(), "it takes x0, and may take x1");
}
