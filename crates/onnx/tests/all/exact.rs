//! Ops on numbers for which computing in another type would show: large integers, and half-precision floats with
//! overflowing intermediate results.

use polygrad_core::{DType, Element, ErrorKind, HostTensor};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, ElementType, Graph, Literal, Node, ValueId};
use polygrad_onnx::{OnnxModel, Options, Outputs};
use polygrad_tensor::{Device, Result, Shape};

pub(crate) type Attributes<'a> = &'a [(&'a str, Attribute)];

/// Runs one node on constants without folding, so that errors come from the run.
pub(crate) fn run(
    op: &str,
    opset: i64,
    inputs: &[Literal],
    attributes: Attributes<'_>,
    outputs: usize,
) -> Result<Outputs> {
    let mut body = Body::default();
    let inputs: Vec<Option<ValueId>> = inputs
        .iter()
        .enumerate()
        .map(|(i, literal)| Some(body.add_initializer(format!("c{i}"), literal.clone())))
        .collect();
    let outputs: Vec<ValueId> = (0..outputs).map(|i| body.add_value(format!("y{i}"), None)).collect();
    body.outputs = outputs.clone();
    body.nodes.push(Node {
        name: "the node".into(),
        op_type: op.into(),
        inputs,
        outputs: outputs.into_iter().map(Some).collect(),
        attributes: attributes
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        ..Node::default()
    });
    let graph = Graph {
        opsets: [(String::new(), opset)].into(),
        body,
        ..Graph::default()
    };
    let options = Options {
        fold_constants: false,
        ..Options::default()
    };
    OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), options)?.forward(&[])
}

pub(crate) fn tensor<T: Element>(dims: &[usize], values: &[T]) -> Literal {
    HostTensor::new(Shape::new(dims).unwrap(), values.to_vec())
        .unwrap()
        .into()
}

pub(crate) fn list<T: Element>(values: &[T]) -> Literal {
    tensor(&[values.len()], values)
}

fn unsigned(values: &[i64]) -> Literal {
    Literal::new(ElementType::U64, list(values).host().clone()).unwrap()
}

fn half(dims: &[usize], values: &[f64]) -> Literal {
    tensor(dims, values).host().cast(DType::F16).into()
}

pub(crate) fn ints(outputs: &Outputs, i: usize) -> Vec<i64> {
    outputs
        .tensor(i)
        .unwrap()
        .to_dtype(DType::I64)
        .unwrap()
        .to_vec()
        .unwrap()
}

pub(crate) fn floats(outputs: &Outputs, i: usize) -> Vec<f64> {
    outputs.tensor(i).unwrap().to_host().unwrap().to_f64_vec()
}

const P53: i64 = 1 << 53;
const P62: i64 = 1 << 62;

#[test]
fn unique_tells_integers_apart_that_f64_does_not() {
    let values = [P53, P53 + 1, P53, P62 + 1, P62];
    for x in [list(&values), unsigned(&values)] {
        let y = run("Unique", 18, std::slice::from_ref(&x), &[], 4).unwrap();
        assert_eq!(ints(&y, 0), [P53, P53 + 1, P62, P62 + 1]);
        assert_eq!(ints(&y, 1), [0, 1, 4, 3]);
        assert_eq!(ints(&y, 2), [0, 1, 0, 3, 2]);
        assert_eq!(ints(&y, 3), [2, 1, 1, 1]);
        let order = run("Unique", 18, &[x], &[("sorted", Attribute::Int(0))], 1).unwrap();
        assert_eq!(ints(&order, 0), [P53, P53 + 1, P62 + 1, P62]);
    }
    let rows = tensor(&[3, 2], &[P53 + 1, 7, P53, 7, P53 + 1, 7]);
    let y = run("Unique", 18, &[rows], &[("axis", Attribute::Int(0))], 4).unwrap();
    assert_eq!(ints(&y, 0), [P53, 7, P53 + 1, 7]);
    assert_eq!((ints(&y, 1), ints(&y, 3)), (vec![1, 0], vec![1, 2]));
}

#[test]
fn zeros_of_both_signs_are_one_value() {
    let x = list(&[0.0f32, -0.0, 1.0, -0.0, f32::NAN, f32::NAN, -1.0]);
    let y = run("Unique", 18, &[x], &[], 4).unwrap();
    let values = floats(&y, 0);
    assert_eq!(values[..3], [-1.0, 0.0, 1.0]);
    assert!(values[1].is_sign_positive() && values[3].is_nan() && values.len() == 4);
    assert_eq!((ints(&y, 1), ints(&y, 3)), (vec![6, 0, 2, 4], vec![1, 3, 1, 2]));
    let rows = tensor(&[2, 2], &[-0.0f32, 1.0, 0.0, 1.0]);
    let y = run("Unique", 18, &[rows], &[("axis", Attribute::Int(0))], 4).unwrap();
    assert_eq!((ints(&y, 1), ints(&y, 3)), (vec![0], vec![2]));
    assert!(floats(&y, 0)[0].is_sign_negative());
}

#[test]
fn uint64_is_right_or_refused() {
    let direction = |text: &str| [("direction", Attribute::String(text.into()))];
    let big = i64::MAX;
    for (op, a, b, attributes) in [
        ("Sub", 3, 5, vec![]),
        ("Add", big, 5, vec![]),
        ("Mul", P62, 2, vec![]),
        ("Mul", P62, 6, vec![]),
        ("BitShift", 1, 63, direction("LEFT").to_vec()),
        ("Pow", 2, 63, vec![]),
        ("Sum", big, big, vec![]),
    ] {
        let error = run(op, 18, &[unsigned(&[a]), unsigned(&[b])], &attributes, 1).unwrap_err();
        assert!(error.kind() == ErrorKind::OutOfRange, "{op}: {error}");
        assert!(
            error.to_string().contains("the node") && error.to_string().contains("uint64"),
            "{error}"
        );
    }
    for (op, a, b, attributes, wanted) in [
        ("Sub", 5, 3, vec![], 2),
        ("Mul", P62, 4, vec![], 0),
        ("Mul", P62 + 1, 4, vec![], 4),
        ("Add", big - 5, 5, vec![], big),
        ("BitShift", 1, 62, direction("LEFT").to_vec(), P62),
        ("BitShift", 2, 63, direction("LEFT").to_vec(), 0),
        ("BitShift", big, 63, direction("RIGHT").to_vec(), 0),
        ("BitShift", big, 62, direction("RIGHT").to_vec(), 1),
        ("Div", big, P53, vec![], 1023),
        ("Mod", big, P53, vec![], P53 - 1),
    ] {
        let y = run(op, 18, &[unsigned(&[a]), unsigned(&[b])], &attributes, 1).unwrap();
        assert_eq!(ints(&y, 0), [wanted], "{op} of {a} and {b}");
    }
    assert!(run("BitwiseNot", 18, &[unsigned(&[0])], &[], 1).is_err());
    let sums = [("keepdims", Attribute::Int(0))];
    assert!(run("ReduceSum", 18, &[unsigned(&[big, 1])], &sums, 1).is_err());
    assert!(run("CumSum", 18, &[unsigned(&[big, 1]), list(&[0i64])], &[], 1).is_err());
    let cast = |x: Literal| run("Cast", 18, &[x], &[("to", Attribute::Int(13))], 1);
    assert!(cast(list(&[-1i64])).is_err());
    assert!(cast(list(&[-1.0f32])).is_err());
    assert!(cast(list(&[9.3e18f32])).is_err());
    assert!(cast(list(&[f64::INFINITY])).is_err());
    assert_eq!(ints(&cast(list(&[big, 0])).unwrap(), 0), [big, 0]);
    assert_eq!(
        ints(&cast(list(&[9.0e18f64, 0.5])).unwrap(), 0),
        [9_000_000_000_000_000_000, 0]
    );
}

#[test]
fn integers_are_not_taken_through_floats() {
    let y = run("Pow", 18, &[list(&[16_777_217i64, 3]), list(&[1.0f32, 2.0])], &[], 1).unwrap();
    assert_eq!(ints(&y, 0), [16_777_217, 9]);
    let fmod = [("fmod", Attribute::Int(1))];
    let (a, b) = (list(&[i64::MIN, -7, 7, -6]), list(&[3i64, 3, -3, 3]));
    assert_eq!(
        ints(&run("Mod", 18, &[a, b], &fmod, 1).unwrap(), 0),
        [i64::MIN % 3, -1, 1, 0]
    );
    let kernel = [("kernel_shape", Attribute::Ints(vec![2]))];
    let x = tensor(&[1, 1, 2], &[P53, P53 + 1]);
    assert!(
        run("MaxPool", 18, &[x], &kernel, 1)
            .unwrap_err()
            .to_string()
            .contains("int64")
    );
    let (x, scale, zero) = (list(&[16_777_217i32, -5]), list(&[1.0f32]), list(&[16_777_216i32]));
    let (scale, zero) = (scale.host().reshape(Shape::SCALAR), zero.host().reshape(Shape::SCALAR));
    let y = run(
        "DequantizeLinear",
        18,
        &[x, scale.unwrap().into(), zero.unwrap().into()],
        &[],
        1,
    )
    .unwrap();
    assert_eq!(floats(&y, 0)[0], 1.0);
    let largest = tensor(&[0], &[] as &[i64]);
    assert_eq!(ints(&run("ReduceMax", 18, &[largest], &[], 1).unwrap(), 0), [i64::MIN]);
    let bytes = Literal::new(ElementType::I8, tensor(&[0], &[] as &[i32]).host().clone()).unwrap();
    assert_eq!(ints(&run("ReduceMax", 18, &[bytes], &[], 1).unwrap(), 0), [-128]);
}

#[test]
fn reductions_of_integers_give_integers() {
    // As in ONNX Runtime: the real result truncated to an integer.
    let x = list(&[100i32, 27, 20]);
    for (op, wanted) in [
        ("ReduceLogSum", 4),
        ("ReduceLogSumExp", 100),
        ("ReduceMean", 49),
        ("ReduceL1", 147),
        ("ReduceL2", 105),
        ("ReduceSumSquare", 11_129),
    ] {
        let y = run(op, 13, std::slice::from_ref(&x), &[], 1).unwrap();
        assert_eq!(y.tensor(0).unwrap().dtype(), DType::I32, "{op}");
        assert_eq!(ints(&y, 0), [wanted], "{op}");
    }
    let y = run("ReduceMean", 13, &[list(&[-7i32, 0])], &[], 1).unwrap();
    assert_eq!(ints(&y, 0), [-3]);
}

/// Whether all values are within an f16 step of the wanted one.
fn near(found: &[f64], wanted: f64, op: &str) {
    assert!(
        found.iter().all(|v| (v - wanted).abs() <= wanted.abs() / 1000.0),
        "{op}: {found:?}, not {wanted}"
    );
}

#[test]
fn half_floats_do_not_overflow_on_the_way() {
    let list_of = |name: &'static str, list: &[i64]| (name, Attribute::Ints(list.to_vec()));
    let image = |value: f64| half(&[1, 1, 4, 4], &[value; 16]);
    let window = [list_of("kernel_shape", &[4, 4])];
    for (op, x, attributes, wanted) in [
        ("AveragePool", image(60_000.0), window.to_vec(), 60_000.0),
        ("LpPool", image(300.0), window.to_vec(), 1200.0),
        ("GlobalLpPool", image(300.0), vec![], 1200.0),
        ("GlobalAveragePool", image(60_000.0), vec![], 60_000.0),
        ("ReduceL2", half(&[1, 64], &[300.0; 64]), vec![], 2400.0),
        ("ReduceMean", half(&[1, 64], &[60_000.0; 64]), vec![], 60_000.0),
        (
            "ReduceLogSum",
            half(&[1, 64], &[60_000.0; 64]),
            vec![],
            (64.0f64 * 60_000.0).ln(),
        ),
        ("ReduceProd", half(&[1, 4], &[300.0, 300.0, 0.01, 1.0]), vec![], 900.0),
        ("LpNormalization", half(&[1, 64], &[300.0; 64]), vec![], 0.125),
        ("Acosh", half(&[2], &[1000.0; 2]), vec![], 1000f64.acosh()),
        ("Asinh", half(&[2], &[1000.0; 2]), vec![], 1000f64.asinh()),
        ("Sinh", half(&[2], &[11.5; 2]), vec![], 11.5f64.sinh()),
        // 300 / (1 + 1e-4 / 5 · 90000 · 1)^0.75, for one channel.
        (
            "LRN",
            half(&[1, 1, 2], &[300.0; 2]),
            vec![("size", Attribute::Int(5))],
            300.0 / 2.8f64.powf(0.75),
        ),
    ] {
        let y = run(op, 13, &[x], &attributes, 1).unwrap_or_else(|e| panic!("{op}: {e}"));
        assert_eq!(y.tensor(0).unwrap().dtype(), DType::F16, "{op}");
        near(&floats(&y, 0), wanted, op);
    }
    let x = || half(&[2], &[60_000.0; 2]);
    near(
        &floats(&run("Mean", 13, &[x(), x(), x()], &[], 1).unwrap(), 0),
        60_000.0,
        "Mean",
    );
    let parts = [x(), x(), half(&[2], &[-60_000.0; 2])];
    near(&floats(&run("Sum", 13, &parts, &[], 1).unwrap(), 0), 60_000.0, "Sum");
    let spread: Vec<f64> = (0..16).map(|i| if i % 2 == 0 { 600.0 } else { -600.0 }).collect();
    let one = || half(&[1], &[1.0]);
    for (op, inputs) in [
        ("MeanVarianceNormalization", vec![half(&[1, 1, 4, 4], &spread)]),
        (
            "InstanceNormalization",
            vec![half(&[1, 1, 4, 4], &spread), one(), half(&[1], &[0.0])],
        ),
    ] {
        let y = run(op, 13, &inputs, &[], 1).unwrap();
        let sizes: Vec<f64> = floats(&y, 0).iter().map(|v| v.abs()).collect();
        near(&sizes, 1.0, op);
    }
}

/// In f32, as in ONNX Runtime.
#[test]
fn large_floats_do_not_overflow_on_the_way() {
    for (op, x, wanted) in [
        ("Asinh", 1e20, 46.744_849),
        ("Asinh", -1e20, -46.744_849),
        ("Asinh", 0.0, 0.0),
        ("Acosh", 1e20, 46.744_849),
        ("Acosh", 1.0001, 0.014_142_02),
        ("Sinh", 89.0, 2.244_806_4e38),
        ("Sinh", -89.0, -2.244_806_4e38),
        ("Sinh", 1e-20, 1e-20),
        ("Cosh", 89.0, 2.244_806_4e38),
    ] {
        let y = run(op, 13, &[list(&[x as f32])], &[], 1).unwrap();
        near(&floats(&y, 0), wanted, op);
    }
    let gemm = |a: f64, alpha: f32, bias: Option<f64>| {
        let mut inputs = vec![half(&[1, 64], &[a; 64]), half(&[64, 1], &[a; 64])];
        inputs.extend(bias.map(|bias| half(&[1], &[bias])));
        floats(
            &run("Gemm", 13, &inputs, &[("alpha", Attribute::Float(alpha))], 1).unwrap(),
            0,
        )
    };
    near(&gemm(100.0, 0.001, None), 640.0, "Gemm");
    near(&gemm(40.0, 1.0, Some(-60_000.0)), 42_400.0, "Gemm");
    let (image, bias) = (half(&[1, 2, 1, 1], &[200.0; 2]), half(&[1], &[-40_000.0]));
    let y = run("Conv", 11, &[image.clone(), image, bias], &[], 1).unwrap();
    near(&floats(&y, 0), 40_000.0, "Conv");
}

#[test]
fn exponents_stay_what_they_are() {
    let power = |base: Literal, exponent: Literal| run("Pow", 15, &[base, exponent], &[], 1).unwrap();
    let odd = list(&[(1i64 << 24) + 1]);
    assert_eq!(floats(&power(list(&[-1f32]), odd.clone()), 0), [-1.0]);
    assert_eq!(floats(&power(half(&[1], &[-1.0]), list(&[2049i64])), 0), [-1.0]);
    assert_eq!(ints(&power(list(&[2i32]), list(&[(1i64 << 32) + 2])), 0), [0]);
    assert_eq!(ints(&power(list(&[-1i32]), odd), 0), [-1]);
}

#[test]
fn products_of_bytes_wrap() {
    let bytes = |dims: &[usize]| tensor(dims, &vec![255u8; 40_000]);
    let y = run("MatMulInteger", 10, &[bytes(&[1, 40_000]), bytes(&[40_000, 1])], &[], 1).unwrap();
    assert_eq!(ints(&y, 0), [-1_693_967_296]);
    let image = || bytes(&[1, 1, 200, 200]);
    let y = run("ConvInteger", 10, &[image(), image()], &[], 1).unwrap();
    assert_eq!(ints(&y, 0), [-1_693_967_296]);
}

/// A dtype that stores a narrow type can hold values outside it: the next op must know where to wrap.
#[test]
fn results_keep_the_element_type() {
    let small =
        |dims: &[usize], values: &[i32]| Literal::new(ElementType::I8, tensor(dims, values).host().clone()).unwrap();
    let (mode, cubic) = ("mode", Attribute::String("cubic".into()));
    let cases: [(&str, Vec<Literal>, Attributes<'_>); 3] = [
        (
            "Resize",
            vec![
                small(&[1, 1, 1, 4], &[-128, -128, 127, 127]),
                list::<f32>(&[]),
                list(&[1f32, 1.0, 1.0, 2.0]),
            ],
            &[(mode, cubic)],
        ),
        ("PRelu", vec![small(&[2], &[100, -100]), small(&[1], &[1])], &[]),
        (
            "Col2Im",
            vec![small(&[1, 1, 2], &[100, -100]), list(&[1i64, 2]), list(&[1i64, 1])],
            &[],
        ),
    ];
    for (op, inputs, attributes) in cases {
        let y = run(op, 18, &inputs, attributes, 1).unwrap_or_else(|e| panic!("{op}: {e}"));
        let (_, value) = y.iter().next().unwrap();
        assert_eq!(value.element(), Some(ElementType::I8), "{op}");
        assert!(ints(&y, 0).iter().all(|v| (-128..=127).contains(v)), "{op}");
    }
}

#[test]
fn positions_of_a_pool_are_inside() {
    // ONNX Runtime's, for a tensor of only −∞: the first element of each window that is not padding.
    let x = || tensor(&[1, 1, 4, 4], &[f32::NEG_INFINITY; 16]);
    let of = |attributes: Attributes<'_>| {
        let y = run("MaxPool", 12, &[x()], attributes, 2).unwrap();
        assert!(floats(&y, 0).iter().all(|v| *v == f64::NEG_INFINITY));
        ints(&y, 1)
    };
    let kernel = ("kernel_shape", Attribute::Ints(vec![3, 3]));
    let pads = |list: [i64; 4]| ("pads", Attribute::Ints(list.to_vec()));
    let wanted = [0, 0, 1, 2, 0, 0, 1, 2, 4, 4, 5, 6, 8, 8, 9, 10];
    assert_eq!(of(&[kernel.clone(), pads([1, 1, 1, 1])]), wanted);
    let same = ("auto_pad", Attribute::String("SAME_UPPER".into()));
    assert_eq!(of(&[kernel.clone(), same]), wanted);
    assert_eq!(of(&[kernel.clone(), pads([1, 0, 0, 0])]), [0, 1, 0, 1, 4, 5]);
    let column_major = ("storage_order", Attribute::Int(1));
    let turned = wanted.map(|at| at % 4 * 4 + at / 4);
    assert_eq!(of(&[kernel.clone(), pads([1, 1, 1, 1]), column_major]), turned);
    let dilated = ("dilations", Attribute::Ints(vec![2, 2]));
    let wanted = [0, 1, 0, 1, 4, 5, 4, 5, 0, 1, 0, 1, 4, 5, 4, 5];
    assert_eq!(of(&[kernel, pads([2, 2, 2, 2]), dilated]), wanted);
}

#[test]
fn unequal_parts_must_be_said_before_version_18() {
    let x = || list(&[0i64, 1, 2, 3, 4, 5, 6]);
    assert!(
        run("Split", 13, &[x()], &[], 3)
            .unwrap_err()
            .to_string()
            .contains("equal parts")
    );
    assert_eq!(run("Split", 13, &[list(&[0i64; 6])], &[], 3).unwrap().len(), 3);
    let y = run("Split", 18, &[x()], &[("num_outputs", Attribute::Int(3))], 3).unwrap();
    assert_eq!(ints(&y, 2), [6]);
}

#[test]
fn a_border_may_go_round_several_times() {
    let mode = [("mode", Attribute::String("wrap".into()))];
    let pad = |pads: &[i64]| {
        let y = run("Pad", 19, &[list(&[1i64, 2, 3]), list(pads)], &mode, 1).unwrap();
        ints(&y, 0)
    };
    assert_eq!(pad(&[1, 2]), [3, 1, 2, 3, 1, 2]);
    assert_eq!(pad(&[4, 5]), [3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]);
    assert_eq!(pad(&[-1, 3]), [2, 3, 2, 3, 2]);
    let none = tensor(&[0], &[] as &[i64]);
    assert!(run("Pad", 19, &[none, list(&[1i64, 1])], &mode, 1).is_err());
}

#[test]
fn nearest_neighbours_lie_where_tensorflow_has_them() {
    let text = |name: &'static str, value: &str| (name, Attribute::String(value.into()));
    let attributes = [
        text("mode", "nearest"),
        text("coordinate_transformation_mode", "tf_half_pixel_for_nn"),
        text("nearest_mode", "floor"),
    ];
    let x = tensor(&[1, 1, 1, 5], &[0f32, 1.0, 2.0, 3.0, 4.0]);
    let empty = || tensor(&[0], &[] as &[f32]);
    let scales = list(&[1f32, 1.0, 1.0, 0.6]);
    let y = run("Resize", 11, &[x, empty(), scales], &attributes, 1).unwrap();
    // ONNX Runtime's.
    assert_eq!(floats(&y, 0), [0.0, 2.0, 4.0]);
}
