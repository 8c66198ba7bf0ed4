//! Products of 8-bit integers, with expected values from ONNX Runtime 1.32, with zero points, and with padding and
//! scales that differ between the sides.

use polygrad_core::{DType, HostTensor, Shape};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::ElementType::{self, I8, U8};
use polygrad_onnx::graph::{Attribute, Body, Graph, Literal, Node, TensorType, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{Device, Result};

struct Case {
    op: &'static str,
    inputs: Vec<Literal>,
    attributes: Vec<(&'static str, Attribute)>,
    expected: &'static [i64],
}

pub(crate) fn number(element: ElementType, dims: &[usize], values: &[i64]) -> Literal {
    let host = HostTensor::new(Shape::new(dims).unwrap(), values.to_vec()).unwrap();
    Literal::new(element, host.cast(element.dtype().unwrap())).unwrap()
}

/// Irregular numbers over the whole range, the same as in the script that recorded the cases.
pub(crate) fn filled(element: ElementType, seed: i64, dims: &[usize]) -> Literal {
    let low = if element == I8 { -128 } else { 0 };
    let count = dims.iter().product::<usize>() as i64;
    let values: Vec<i64> = (0..count)
        .map(|i| (i * i * 37 + i * 91 + seed * 53) % 256 + low)
        .collect();
    number(element, dims, &values)
}

pub(crate) fn real(dims: &[usize], values: &[f64]) -> Literal {
    HostTensor::new(Shape::new(dims).unwrap(), values.to_vec())
        .unwrap()
        .cast(DType::F32)
        .into()
}

fn whole(dims: &[usize], values: &[i32]) -> Literal {
    HostTensor::new(Shape::new(dims).unwrap(), values.to_vec())
        .unwrap()
        .into()
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            op: "MatMulInteger",
            inputs: vec![
                filled(U8, 1, &[2, 3, 5]),
                filled(I8, 2, &[5, 4]),
                number(U8, &[], &[131]),
                number(I8, &[4], &[3, -128, 127, 0]),
            ],
            attributes: vec![],
            expected: &[
                -14326, -12, -7858, -5096, 9618, 84, 966, 15336, 56, -25384, 17400, -3176, 4092, -25216, 31204, -1240,
                -8482, -1460, -25718, -10600, 21214, -39108, 31466, -14872,
            ],
        },
        Case {
            op: "MatMulInteger",
            inputs: vec![
                filled(U8, 3, &[3, 7]),
                filled(U8, 4, &[7, 3]),
                number(U8, &[], &[255]),
                number(U8, &[], &[9]),
            ],
            attributes: vec![],
            expected: &[
                -107958, -108002, -62626, -134266, -134238, -72958, -68596, -108980, -93532,
            ],
        },
        Case {
            op: "MatMulInteger",
            inputs: vec![
                filled(I8, 3, &[3, 7]),
                filled(I8, 4, &[7, 3]),
                number(I8, &[], &[-128]),
                number(I8, &[], &[127]),
            ],
            attributes: vec![],
            expected: &[
                -141153, -94787, -132031, -134989, -88551, -109891, -109171, -103145, -170317,
            ],
        },
        Case {
            op: "MatMulInteger",
            inputs: vec![filled(U8, 3, &[1, 7]), filled(I8, 4, &[7, 3])],
            attributes: vec![],
            expected: &[-12248, 34118, -3126],
        },
        Case {
            op: "ConvInteger",
            inputs: vec![
                filled(U8, 5, &[1, 4, 5, 4]),
                filled(U8, 6, &[4, 2, 3, 2]),
                number(U8, &[], &[77]),
                number(U8, &[], &[200]),
            ],
            attributes: vec![
                ("pads", Attribute::Ints(vec![1, 0, 2, 1])),
                ("strides", Attribute::Ints(vec![2, 1])),
                ("group", Attribute::Int(2)),
            ],
            expected: &[
                -27584, -27056, -63712, -32688, -55648, -44612, -52712, -41508, 7296, 10336, -24128, -47136, -59200,
                -8912, -77216, -48336, -63936, -62516, -110248, -57380, -3200, 16960, -63616, -49920, -62784, -60272,
                -12512, -11056, -81856, -28228, -47880, 3052, -25728, -95712, -46528, -10592, -32192, -2448, -21664,
                -11216, -42400, -56500, 1208, -16852, -39552, -33536, -63232, -25536,
            ],
        },
        Case {
            op: "ConvInteger",
            inputs: vec![
                filled(U8, 5, &[1, 2, 4, 3]),
                filled(I8, 6, &[3, 2, 2, 2]),
                number(U8, &[], &[77]),
                number(I8, &[], &[-5]),
            ],
            attributes: vec![("pads", Attribute::Ints(vec![0, 1, 1, 0]))],
            expected: &[
                7180, 17116, 7236, 7336, 46724, 32092, 4868, 20092, 31940, 10364, -11388, 26480, -5652, -2628, -18716,
                -7832, -37468, -38596, 7268, -40740, -16156, -13156, -6172, -10384, 20940, -26468, 9092, -6616, -11068,
                284, -16444, 12604, -9980, -17732, 26180, -22672,
            ],
        },
        Case {
            op: "QLinearMatMul",
            inputs: vec![
                filled(U8, 7, &[3, 6]),
                real(&[], &[0.013000000268220901]),
                number(U8, &[], &[120]),
                filled(U8, 8, &[6, 4]),
                real(&[], &[0.020999999716877937]),
                number(U8, &[], &[133]),
                real(&[], &[0.3700000047683716]),
                number(U8, &[], &[101]),
            ],
            attributes: vec![],
            expected: &[108, 101, 114, 83, 107, 111, 93, 94, 105, 96, 96, 94],
        },
        Case {
            op: "QLinearMatMul",
            inputs: vec![
                filled(I8, 7, &[3, 6]),
                real(&[], &[0.013000000268220901]),
                number(I8, &[], &[-7]),
                filled(I8, 8, &[6, 4]),
                real(
                    &[4],
                    &[
                        0.020999999716877937,
                        0.004999999888241291,
                        0.03999999910593033,
                        0.010999999940395355,
                    ],
                ),
                number(I8, &[4], &[4, -3, 0, 9]),
                real(&[], &[0.28999999165534973]),
                number(I8, &[], &[-11]),
            ],
            attributes: vec![],
            expected: &[-2, -11, 23, -23, -4, -8, -30, -16, -6, -13, -24, -15],
        },
        Case {
            op: "QLinearMatMul",
            inputs: vec![
                filled(U8, 7, &[3, 6]),
                real(&[], &[0.013000000268220901]),
                number(U8, &[], &[120]),
                filled(I8, 8, &[6, 4]),
                real(&[], &[0.020999999716877937]),
                number(I8, &[], &[0]),
                real(&[], &[0.007000000216066837]),
                number(U8, &[], &[101]),
            ],
            attributes: vec![],
            expected: &[255, 149, 255, 0, 255, 255, 0, 0, 255, 0, 0, 0],
        },
        Case {
            op: "QLinearConv",
            inputs: vec![
                filled(U8, 9, &[1, 2, 4, 4]),
                real(&[], &[0.017000000923871994]),
                number(U8, &[], &[111]),
                filled(I8, 10, &[3, 2, 3, 3]),
                real(
                    &[3],
                    &[0.019999999552965164, 0.007000000216066837, 0.013000000268220901],
                ),
                number(I8, &[3], &[0, 0, 0]),
                real(&[], &[0.4099999964237213]),
                number(U8, &[], &[99]),
                whole(&[3], &[4000, -2500, 123]),
            ],
            attributes: vec![
                ("pads", Attribute::Ints(vec![1, 1, 1, 1])),
                ("strides", Attribute::Ints(vec![2, 1])),
            ],
            expected: &[
                107, 105, 93, 106, 100, 127, 101, 104, 100, 102, 95, 96, 93, 101, 106, 94, 90, 106, 91, 94, 114, 119,
                109, 95,
            ],
        },
        Case {
            op: "QLinearConv",
            inputs: vec![
                filled(U8, 9, &[1, 2, 4, 4]),
                real(&[], &[0.017000000923871994]),
                number(U8, &[], &[111]),
                filled(U8, 10, &[4, 1, 2, 2]),
                real(&[], &[0.019999999552965164]),
                number(U8, &[], &[140]),
                real(&[], &[0.3100000023841858]),
                number(U8, &[], &[99]),
            ],
            attributes: vec![
                ("pads", Attribute::Ints(vec![0, 1, 1, 0])),
                ("group", Attribute::Int(2)),
            ],
            expected: &[
                98, 83, 105, 111, 95, 83, 97, 102, 96, 71, 84, 85, 100, 82, 82, 109, 97, 105, 100, 97, 102, 100, 97,
                89, 99, 105, 96, 113, 96, 105, 109, 92, 101, 93, 93, 112, 109, 73, 125, 81, 107, 91, 110, 93, 90, 116,
                96, 105, 105, 74, 113, 97, 94, 88, 118, 97, 84, 115, 99, 83, 108, 99, 85, 83,
            ],
        },
        Case {
            op: "QLinearConv",
            inputs: vec![
                filled(I8, 9, &[1, 2, 4, 4]),
                real(&[], &[0.017000000923871994]),
                number(I8, &[], &[-20]),
                filled(I8, 10, &[3, 2, 3, 3]),
                real(
                    &[3],
                    &[0.019999999552965164, 0.007000000216066837, 0.013000000268220901],
                ),
                number(I8, &[3], &[0, 0, 0]),
                real(&[], &[0.09000000357627869]),
                number(I8, &[], &[5]),
                whole(&[3], &[4000, -2500, 123]),
            ],
            attributes: vec![("pads", Attribute::Ints(vec![1, 1, 1, 1]))],
            expected: &[
                43, 31, -21, 36, -22, -45, 127, -4, 8, 127, 12, 29, 50, 35, -128, -51, 12, 20, -14, -7, -24, -60, 22,
                34, -20, 12, 35, -17, -12, 10, -5, 13, -35, 39, -31, -18, -45, 49, 108, -20, 73, 94, 48, -16, -32, -38,
                -107, -28,
            ],
        },
    ]
}

/// Runs a node whose first operand is an input; the others are inputs or constants.
fn run(case: &Case, constants: bool, options: Options) -> Result<Vec<i64>> {
    let mut body = Body::default();
    let mut given = Vec::new();
    let mut inputs = Vec::new();
    for (i, literal) in case.inputs.iter().enumerate() {
        let name = format!("x{i}");
        inputs.push(Some(if i > 0 && constants {
            body.add_initializer(name, literal.clone())
        } else {
            let info = ValueType::Tensor(TensorType {
                element: literal.element(),
                shape: None,
            });
            let id = body.add_value(name.clone(), Some(info));
            body.inputs.push(id);
            given.push(Value::from(literal.clone()));
            id
        }));
    }
    let output = body.add_value("y".to_owned(), None);
    body.outputs = vec![output];
    body.nodes.push(Node {
        op_type: case.op.into(),
        inputs,
        outputs: vec![Some(output)],
        attributes: case
            .attributes
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        ..Node::default()
    });
    let graph = Graph {
        opsets: [(String::new(), 13)].into(),
        body,
        ..Graph::default()
    };
    let model = OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), options)?;
    model
        .run_ordered(given.into_iter())?
        .tensor(0)?
        .to_dtype(DType::I64)?
        .to_vec()
}

#[test]
fn products_of_bytes_are_those_of_onnx_runtime() -> Result<()> {
    for case in cases() {
        for constants in [false, true] {
            for fuse in [false, true] {
                let options = Options {
                    fuse,
                    ..Options::default()
                };
                let y = run(&case, constants, options)?;
                assert_eq!(
                    y, case.expected,
                    "{} {:?}, constants {constants}, fused {fuse}",
                    case.op, case.attributes
                );
            }
        }
    }
    Ok(())
}

#[test]
fn zero_points_that_bytes_do_not_hold_are_subtracted_all_the_same() -> Result<()> {
    // A zero point for each row of each matrix.
    let case = Case {
        op: "MatMulInteger",
        inputs: vec![
            number(U8, &[2, 1, 2], &[10, 20, 30, 40]),
            number(U8, &[2, 1], &[3, 5]),
            number(U8, &[2, 1, 1], &[1, 2]),
        ],
        attributes: vec![],
        expected: &[9 * 3 + 19 * 5, 28 * 3 + 38 * 5],
    };
    for constants in [false, true] {
        assert_eq!(run(&case, constants, Options::default())?, case.expected);
    }
    Ok(())
}

/// A node with quantized operands, as a file expresses it in floats: dequantized operands, the float op, a quantized
/// result.
fn in_floats(case: &Case, fuse: bool) -> Result<(Vec<String>, Vec<i64>)> {
    let mut body = Body::default();
    let ids: Vec<_> = case
        .inputs
        .iter()
        .enumerate()
        .map(|(i, literal)| {
            if i > 0 {
                return body.add_initializer(format!("x{i}"), literal.clone());
            }
            let ty = TensorType {
                element: literal.element(),
                shape: None,
            };
            let id = body.add_value("x0", Some(ValueType::Tensor(ty)));
            body.inputs.push(id);
            id
        })
        .collect();
    let made = ["a", "b", "c", "y", "z"].map(|name| body.add_value(name, None));
    let along = |axis| vec![("axis".to_owned(), Attribute::Int(axis))];
    let convolves = case.op == "QLinearConv";
    let mut add = |op: &str, inputs: &[ValueId], output: ValueId, attributes: Vec<(String, Attribute)>| {
        body.nodes.push(Node {
            op_type: op.into(),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            attributes,
            ..Node::default()
        });
    };
    add("DequantizeLinear", &ids[..3], made[0], vec![]);
    add(
        "DequantizeLinear",
        &ids[3..6],
        made[1],
        along(if convolves { 0 } else { 1 }),
    );
    let mut operands = vec![made[0], made[1]];
    if ids.len() > 8 {
        operands.push(made[2]);
    }
    let attributes = case
        .attributes
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    add(
        if convolves { "Conv" } else { "MatMul" },
        &operands,
        made[3],
        attributes,
    );
    add("QuantizeLinear", &[made[3], ids[6], ids[7]], made[4], vec![]);
    body.outputs = vec![made[4]];
    if let Some(&bias) = ids.get(8) {
        let of = |i: usize| case.inputs[i].host().to_f64_vec();
        let scales: Vec<f64> = of(4).iter().map(|scale| scale * of(1)[0]).collect();
        let scale = body.add_initializer("scale", real(&[scales.len()], &scales));
        let node = Node {
            op_type: "DequantizeLinear".into(),
            inputs: vec![Some(bias), Some(scale)],
            outputs: vec![Some(made[2])],
            attributes: along(0),
            ..Node::default()
        };
        body.nodes.insert(0, node);
    }
    let graph = Graph {
        opsets: [(String::new(), 13)].into(),
        body,
        ..Graph::default()
    };
    let options = Options {
        fuse,
        ..Options::default()
    };
    let model = OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), options)?;
    let y = model
        .run_ordered([Value::from(case.inputs[0].clone())].into_iter())?
        .tensor(0)?;
    Ok((
        model.steps().iter().map(|step| (*step).to_owned()).collect(),
        y.to_dtype(DType::I64)?.to_vec()?,
    ))
}

#[test]
fn products_in_floats_between_quantized_numbers_are_products_of_bytes() -> Result<()> {
    for case in cases().into_iter().filter(|case| case.op.starts_with("QLinear")) {
        let (steps, y) = in_floats(&case, true)?;
        assert_eq!(steps, [case.op]);
        assert_eq!(y, case.expected, "{} {:?}", case.op, case.attributes);
        // Node by node, the product is rounded to a float, which may turn a half the other way.
        let (steps, y) = in_floats(&case, false)?;
        assert!(steps.len() > 1);
        assert!(
            y.iter()
                .zip(case.expected)
                .all(|(y, expected)| (y - expected).abs() <= 1)
        );
    }
    Ok(())
}
