//! Files whose byte products stay in bytes from op to op, with expected values from ONNX Runtime 1.32.

use polygrad_core::{HostTensor, Shape};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::ElementType::{self, I8};
use polygrad_onnx::graph::{Attribute, Body, Graph, Literal, Node, TensorType, ValueType};
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{Device, Result, Tensor};

use crate::bytes::{filled, number, real};

/// An op, the names of its inputs and outputs, and its attributes.
type Call<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, Attribute)]);

/// A file with a float input `x`, and the last node's first output as output.
fn file(constants: Vec<(&str, Literal)>, nodes: &[Call<'_>]) -> Graph {
    let mut body = Body::default();
    let x = TensorType {
        element: ElementType::F32,
        shape: None,
    };
    let x = body.add_value("x", Some(ValueType::Tensor(x)));
    body.inputs.push(x);
    let mut ids = std::collections::HashMap::from([("x", x)]);
    for (name, literal) in constants {
        ids.insert(name, body.add_initializer(name, literal));
    }
    for &(op, inputs, outputs, attributes) in nodes {
        let inputs = inputs.split(' ').map(|name| Some(ids[name])).collect();
        let outputs = outputs.split(' ').map(|name| {
            let id = body.add_value(name, None);
            ids.insert(name, id);
            Some(id)
        });
        let outputs: Vec<_> = outputs.collect();
        body.outputs = outputs.iter().flatten().copied().take(1).collect();
        body.nodes.push(Node {
            op_type: op.into(),
            inputs,
            outputs,
            attributes: attributes
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            ..Node::default()
        });
    }
    Graph {
        opsets: [(String::new(), 13)].into(),
        body,
        ..Graph::default()
    }
}

/// Compares a file's results with ONNX Runtime's, and its steps with the expected ones.
fn holds(graph: &Graph, dims: &[usize], expected: &[f32], steps: &[&str]) -> Result<()> {
    let x: Vec<f32> = filled(I8, 1, dims)
        .host()
        .to_f64_vec()
        .iter()
        .map(|x| *x as f32 / 50.0)
        .collect();
    let x = HostTensor::new(Shape::new(dims)?, x)?;
    for fuse in [true, false] {
        let options = Options {
            fuse,
            ..Options::default()
        };
        let model = OnnxModel::from_graph(graph, &Device::<Cpu>::default().into_any(), options)?;
        if fuse {
            assert_eq!(model.steps(), steps);
        }
        // The second run may be a replay.
        for _ in 0..3 {
            let y = model.run_ordered([Value::from(x.clone())].into_iter())?.tensor(0)?;
            let y = y.to_vec::<f32>()?;
            assert!(
                y.len() == expected.len() && y.iter().zip(expected).all(|(y, e)| (y - e).abs() < 4e-6),
                "{y:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn activations_of_i8_stay_bytes_from_op_to_op() -> Result<()> {
    let pads = [("pads", Attribute::Ints(vec![1; 4]))];
    let windows = [
        ("kernel_shape", Attribute::Ints(vec![2; 2])),
        ("strides", Attribute::Ints(vec![2; 2])),
    ];
    let first = [("axis", Attribute::Int(0))];
    let constants = vec![
        ("xs", real(&[], &[0.02])),
        ("xz", number(I8, &[], &[-3])),
        ("w", filled(I8, 2, &[3, 2, 3, 3])),
        ("ws", real(&[3], &[0.01, 0.02, 0.015])),
        ("wz", number(I8, &[3], &[0; 3])),
        ("ys", real(&[], &[0.25])),
        ("yz", number(I8, &[], &[4])),
        ("v", filled(I8, 5, &[12, 2])),
        ("vs", real(&[], &[0.01])),
        ("vz", number(I8, &[], &[0])),
        ("b", real(&[2], &[0.5, -1.25])),
    ];
    let graph = file(
        constants,
        &[
            ("QuantizeLinear", "x xs xz", "q", &[]),
            ("DequantizeLinear", "q xs xz", "d", &[]),
            ("DequantizeLinear", "w ws wz", "wd", &first),
            ("Conv", "d wd", "c", &pads),
            ("QuantizeLinear", "c ys yz", "q2", &[]),
            ("DequantizeLinear", "q2 ys yz", "d2", &[]),
            ("MaxPool", "d2", "p", &windows),
            ("QuantizeLinear", "p ys yz", "q3", &[]),
            ("DequantizeLinear", "q3 ys yz", "d3", &[]),
            ("Flatten", "d3", "f", &[]),
            ("QuantizeLinear", "f ys yz", "q4", &[]),
            ("DequantizeLinear", "q4 ys yz", "d4", &[]),
            ("DequantizeLinear", "v vs vz", "vd", &[]),
            ("MatMul", "d4 vd", "m", &[]),
            ("Add", "m b", "y", &[]),
        ],
    );
    let steps = [
        "QuantizeLinear",
        "QLinearConv",
        "MaxPool",
        "Flatten",
        "MatMulIntegerToFloat",
    ];
    holds(&graph, &[1, 2, 4, 4], &[-30.507_5, 15.922_5], &steps)
}

#[test]
fn rows_of_a_table_are_taken_as_bytes() -> Result<()> {
    let constants = vec![
        ("xs", real(&[], &[0.02])),
        ("xz", number(I8, &[], &[-3])),
        ("i", number(ElementType::I64, &[4], &[2, 0, -1, 1])),
        ("v", filled(I8, 5, &[5, 2])),
        ("vs", real(&[], &[0.01])),
        ("vz", number(I8, &[], &[0])),
    ];
    let graph = file(
        constants,
        &[
            ("QuantizeLinear", "x xs xz", "q", &[]),
            ("DequantizeLinear", "q xs xz", "d", &[]),
            ("Gather", "d i", "g", &[]),
            ("QuantizeLinear", "g xs xz", "q2", &[]),
            ("DequantizeLinear", "q2 xs xz", "d2", &[]),
            ("DequantizeLinear", "v vs vz", "vd", &[]),
            ("MatMul", "d2 vd", "y", &[]),
        ],
    );
    let expected = [
        1.094_199_8,
        -0.329_799_95,
        -0.978_200_1,
        2.260_2,
        1.094_199_8,
        -0.329_799_95,
        2.503_399_8,
        -2.792_6,
    ];
    let steps = ["QuantizeLinear", "Gather", "MatMulIntegerToFloat"];
    holds(&graph, &[3, 5], &expected, &steps)
}

#[test]
fn numbers_that_are_only_rounded_stay_floats() -> Result<()> {
    let pair = |element, scale, zero| {
        let constants = vec![("s", real(&[], &[scale])), ("z", number(element, &[], &[zero]))];
        let mut graph = file(
            constants,
            &[
                ("QuantizeLinear", "x s z", "q", &[]),
                ("DequantizeLinear", "q s z", "d", &[]),
                ("Neg", "d", "y", &[]),
            ],
        );
        graph.opsets = [(String::new(), 21)].into();
        graph
    };
    let steps = ["QuantizeLinear+DequantizeLinear", "Neg"];
    // The ranges cut numbers off at both ends.
    let i8 = [1.25, -1.06, 0.02, -0.38, -1.3, -0.5];
    holds(&pair(I8, 0.01, -3), &[1, 6], &i8, &steps)?;
    let u16 = [1.2, -0.766_05, 0.020_01, -0.380_01, -0.766_05, -0.500_01];
    holds(&pair(ElementType::U16, 0.000_03, 40000), &[1, 6], &u16, &steps)?;
    let device = Device::<Cpu>::default().into_any();
    let model = OnnxModel::from_graph(&pair(I8, 0.01, -3), &device, Options::default())?;
    let y = model.forward(&[Tensor::from_vec(vec![f32::NAN, 0.5], [1, 2], &device)?])?;
    let y = y.tensor(0)?.to_vec::<f32>()?;
    // Of NaN ONNX Runtime makes the smallest integer.
    assert!((y[0] - 1.25).abs() < 1e-6 && (y[1] + 0.5).abs() < 1e-6, "{y:?}");
    Ok(())
}

/// A linear layer whose input is quantized in each run.
fn dynamic() -> Graph {
    let constants = vec![
        ("w", filled(I8, 2, &[5, 3])),
        ("ws", real(&[3], &[0.01, 0.02, 0.015])),
        ("wz", number(I8, &[3], &[0, 3, -7])),
        ("b", real(&[3], &[0.5, -1.25, 2.0])),
    ];
    file(
        constants,
        &[
            ("DynamicQuantizeLinear", "x", "q s z", &[]),
            ("MatMulInteger", "q w z wz", "i", &[]),
            ("Cast", "i", "f", &[("to", Attribute::Int(1))]),
            ("Mul", "s ws", "t", &[]),
            ("Mul", "f t", "m", &[]),
            ("Add", "b m", "y", &[]),
        ],
    )
}

#[test]
fn products_that_are_quantized_in_each_run_are_one_step() -> Result<()> {
    let expected = [
        1.363_629_7,
        -7.116_164,
        4.666_211,
        1.956_564_5,
        3.776_810_2,
        -0.285_609_25,
    ];
    holds(
        &dynamic(),
        &[2, 5],
        &expected,
        &["DynamicQuantizeLinear", "MatMulIntegerToFloat"],
    )
}

/// The steps have constants that the file does not, such as the product of two scales.
#[test]
fn a_bias_behind_quantized_products_is_set_again_and_again() -> Result<()> {
    let device = Device::<Cpu>::default().into_any();
    let mut model = OnnxModel::from_graph(&dynamic(), &device, Options::default())?;
    model.train(|name| name == "b")?;
    let x = HostTensor::new(Shape::from([1, 5]), vec![0.5f32, -1.0, 0.25, 2.0, -0.75])?;
    let mut given = Vec::new();
    for bias in [[1.0f32, 2.0, 3.0], [-1.0, 0.0, 4.0]] {
        model.set([("b".to_owned(), Tensor::var("b", Tensor::new(bias, &device)?)?)])?;
        let y = model.run_ordered([Value::from(x.clone())].into_iter())?.tensor(0)?;
        given.push(y.to_vec::<f32>()?);
    }
    for (i, change) in [-2.0, -2.0, 1.0].into_iter().enumerate() {
        assert!((given[1][i] - given[0][i] - change).abs() < 1e-5, "{given:?}");
    }
    Ok(())
}

/// Quantized convolution of `x`, whose result `q2` has the scale `ys` and the zero point `yz`.
fn convolved<'a>(
    inputs: &'a str,
    pads: &'a [(&'a str, Attribute)],
    first: &'a [(&'a str, Attribute)],
) -> (Vec<(&'a str, Literal)>, Vec<Call<'a>>) {
    let nodes: Vec<Call<'_>> = vec![
        ("QuantizeLinear", "x xs xz", "q", &[]),
        ("DequantizeLinear", "q xs xz", "d", &[]),
        ("DequantizeLinear", "w ws wz", "wd", first),
        ("Conv", inputs, "c", pads),
        ("QuantizeLinear", "c ys yz", "q2", &[]),
        ("DequantizeLinear", "q2 ys yz", "d2", &[]),
    ];
    let constants = vec![
        ("xs", real(&[], &[0.02])),
        ("xz", number(ElementType::U8, &[], &[131])),
        ("w", filled(I8, 2, &[3, 2, 3, 3])),
        ("ws", real(&[3], &[0.01, 0.02, 0.015])),
        ("wz", number(I8, &[3], &[0; 3])),
        ("ys", real(&[], &[0.25])),
        ("yz", number(ElementType::U8, &[], &[120])),
    ];
    (constants, nodes)
}

#[test]
fn functions_of_bytes_are_tables() -> Result<()> {
    let (pads, first) = ([("pads", Attribute::Ints(vec![1; 4]))], [("axis", Attribute::Int(0))]);
    let (mut constants, mut nodes) = convolved("d wd", &pads, &first);
    constants.extend([
        ("gs", real(&[], &[1.0 / 256.0])),
        ("gz", number(ElementType::U8, &[], &[0])),
        ("ms", real(&[], &[0.125])),
        ("mz", number(ElementType::U8, &[], &[3])),
    ]);
    nodes.extend([
        ("Sigmoid", "d2", "g", &[][..]),
        ("QuantizeLinear", "g gs gz", "q3", &[]),
        ("DequantizeLinear", "q3 gs gz", "d3", &[]),
        ("Mul", "d2 d3", "m", &[]),
        ("QuantizeLinear", "m ms mz", "q4", &[]),
        ("DequantizeLinear", "q4 ms mz", "y", &[]),
    ]);
    let expected = [
        6.5, 2.375, 3.125, 0.5, -0.25, 0.25, -0.125, 0.0, -0.125, 0.0, 1.25, 1.25, 3.625, 8.25, -0.125, 1.75, 1.75,
        -0.125,
    ];
    let steps = [
        "QuantizeLinear",
        "QLinearConv",
        "DequantizeLinear+Sigmoid+QuantizeLinear+QLinearMul+DequantizeLinear",
    ];
    holds(&file(constants, &nodes), &[1, 2, 2, 3], &expected, &steps)
}

#[test]
fn a_bias_in_floats_is_rounded_to_the_scale_of_the_products() -> Result<()> {
    let (pads, first) = ([("pads", Attribute::Ints(vec![1; 4]))], [("axis", Attribute::Int(0))]);
    let (mut constants, nodes) = convolved("d wd b", &pads, &first);
    constants.push(("b", real(&[3], &[0.5, -1.25, 2.0])));
    let expected = [
        7.0, 3.0, 3.75, 1.25, -0.25, 1.0, -4.5, -6.25, -5.5, -8.75, 0.25, 0.25, 5.75, 10.25, -1.5, 4.0, 4.0, -2.25,
    ];
    let steps = ["QuantizeLinear", "QLinearConv", "DequantizeLinear"];
    holds(&file(constants, &nodes), &[1, 2, 2, 3], &expected, &steps)
}

#[test]
fn sums_products_and_parts_stay_bytes() -> Result<()> {
    let pads = [("pads", Attribute::Ints(vec![1; 4]))];
    let (first, second) = ([("axis", Attribute::Int(0))], [("axis", Attribute::Int(1))]);
    for (element, below) in [(ElementType::U8, 0), (I8, 128)] {
        let zero = |value: i64| number(element, &[], &[value - below]);
        let constants = vec![
            ("xs", real(&[], &[0.02])),
            ("xz", zero(131)),
            ("w", filled(I8, 2, &[2, 2, 3, 3])),
            ("ws", real(&[2], &[0.01, 0.02])),
            ("wz", number(I8, &[2], &[0; 2])),
            ("ys", real(&[], &[0.25])),
            ("yz", zero(3)),
            ("as", real(&[], &[0.03125])),
            ("az", zero(127)),
            ("ms", real(&[], &[0.0625])),
            ("mz", zero(120)),
        ];
        let graph = file(
            constants,
            &[
                ("QuantizeLinear", "x xs xz", "q", &[]),
                ("DequantizeLinear", "q xs xz", "d", &[]),
                ("DequantizeLinear", "w ws wz", "wd", &first),
                ("Conv", "d wd", "c", &pads),
                ("QuantizeLinear", "c ys yz", "q2", &[]),
                ("DequantizeLinear", "q2 ys yz", "d2", &[]),
                ("Add", "d d2", "a", &[]),
                ("QuantizeLinear", "a as az", "q3", &[]),
                ("DequantizeLinear", "q3 as az", "d3", &[]),
                ("GlobalMaxPool", "d2", "p", &[]),
                ("QuantizeLinear", "p ys yz", "q4", &[]),
                ("DequantizeLinear", "q4 ys yz", "d4", &[]),
                ("Mul", "d3 d4", "m", &[]),
                ("QuantizeLinear", "m ms mz", "q5", &[]),
                ("DequantizeLinear", "q5 ms mz", "d5", &[]),
                ("Concat", "d3 d5", "k", &second),
                ("QuantizeLinear", "k as az", "q6", &[]),
                ("DequantizeLinear", "q6 as az", "y", &[]),
            ],
        );
        let expected = [
            4.0, 3.5625, 3.21875, 1.125, 1.5, 1.0, -0.53125, 0.65625, -1.78125, -2.71875, 0.03125, 2.03125, 4.0, 4.0,
            4.0, 4.0, 4.0, 4.0, -0.8125, 1.0, -2.6875, -3.96875, 0.0625, 3.0625,
        ];
        let steps = [
            "QuantizeLinear",
            "QLinearConv",
            "DequantizeLinear",
            "QLinearAdd",
            "GlobalMaxPool",
            "QuantizeLinear",
            "QLinearMul",
            "QLinearConcat",
            "DequantizeLinear",
        ];
        holds(&graph, &[1, 2, 2, 3], &expected, &steps)?;
    }
    Ok(())
}
