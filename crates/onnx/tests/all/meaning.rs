//! Cases of ONNX's semantics that are easy to get wrong: extents, ties, NaN, ends of a range, empty tensors.

use polygrad_core::{DType, ErrorKind};
use polygrad_onnx::graph::{Attribute, ElementType, Literal};

use super::exact::{Attributes, floats, ints, list, run, tensor};

fn text(name: &'static str, value: &str) -> (&'static str, Attribute) {
    (name, Attribute::String(value.into()))
}

fn int(name: &'static str, value: i64) -> (&'static str, Attribute) {
    (name, Attribute::Int(value))
}

fn along(extent: usize) -> Literal {
    tensor(&[extent], &(0..extent).map(|i| i as f32).collect::<Vec<_>>())
}

fn none() -> Literal {
    tensor::<f32>(&[0], &[])
}

/// As in PyTorch and ONNX Runtime.
#[test]
fn factors_give_the_extents_that_they_are_meant_to() {
    let floor = [
        text("coordinate_transformation_mode", "asymmetric"),
        text("nearest_mode", "floor"),
    ];
    let y = run("Resize", 19, &[along(10), none(), list(&[0.7f32])], &floor, 1).unwrap();
    assert_eq!(floats(&y, 0), [0.0, 1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
    for (from, factor, to) in [
        (10, 0.7f32, 7),
        (10, 1.1, 11),
        (5, 1.4, 7),
        (3, 5.0 / 3.0, 5),
        (100, 0.29, 29),
        (7, 0.5, 3),
    ] {
        let y = run("Resize", 19, &[along(from), none(), list(&[factor])], &floor, 1).unwrap();
        assert_eq!(floats(&y, 0).len(), to, "{from} by {factor}");
    }
    let y = run("Resize", 10, &[along(10), list(&[0.7f32])], &[], 1).unwrap();
    assert_eq!(floats(&y, 0).len(), 7);
}

/// The rounded quotient 2 / 14 would make the last position 6.99…; PyTorch's is 7, too.
#[test]
fn whole_positions_are_found_so() {
    let floor = [
        text("coordinate_transformation_mode", "asymmetric"),
        text("nearest_mode", "floor"),
    ];
    for (from, to) in (1..=40).flat_map(|from| (1..=40).map(move |to| (from, to))) {
        let y = run(
            "Resize",
            19,
            &[along(from), none(), none(), list(&[to as i64])],
            &floor,
            1,
        )
        .unwrap();
        let wanted: Vec<f64> = (0..to).map(|i| (i * from / to) as f64).collect();
        assert_eq!(floats(&y, 0), wanted, "{from} to {to}");
    }
}

#[test]
fn axes_without_elements_stay_so() {
    let x = || tensor::<f32>(&[1, 1, 0, 2], &[]);
    for mode in ["nearest", "linear", "cubic"] {
        let mode = [text("mode", mode)];
        let sizes = |list_of: &[i64]| run("Resize", 19, &[x(), none(), none(), list(list_of)], &mode, 1);
        assert_eq!(sizes(&[1, 1, 0, 5]).unwrap().tensor(0).unwrap().dims(), [1, 1, 0, 5]);
        assert!(
            sizes(&[1, 1, 3, 2])
                .unwrap_err()
                .to_string()
                .contains("an axis of 0 cannot be resized to 3")
        );
        let y = run("Resize", 19, &[x(), none(), list(&[1f32, 1.0, 2.0, 2.0])], &mode, 1).unwrap();
        assert_eq!(y.tensor(0).unwrap().dims(), [1, 1, 0, 4]);
    }
}

/// SqueezeNet's pool on a small image, as in PyTorch and ONNX Runtime.
#[test]
fn a_window_of_ceil_mode_may_be_larger_than_the_image() {
    let of = |list_of: &[i64]| Attribute::Ints(list_of.to_vec());
    let x = || tensor(&[1, 1, 2, 2], &[0f32, 1.0, 2.0, 3.0]);
    let window = [("kernel_shape", of(&[3, 3])), ("strides", of(&[2, 2]))];
    let ceil = [&window[..], &[int("ceil_mode", 1)]].concat();
    for (op, wanted) in [("MaxPool", 3.0), ("AveragePool", 1.5), ("LpPool", 14f64.sqrt())] {
        let y = run(op, 22, &[x()], &ceil, 1).unwrap();
        assert_eq!(y.tensor(0).unwrap().dims(), [1, 1, 1, 1]);
        assert!((floats(&y, 0)[0] - wanted).abs() < 1e-6, "{op}");
        assert!(run(op, 22, &[x()], &window, 1).is_err(), "{op}");
    }
    let wide = [
        ("kernel_shape", of(&[5, 5])),
        ("strides", of(&[2, 2])),
        int("ceil_mode", 1),
    ];
    let error = run("MaxPool", 22, &[x()], &wide, 1).unwrap_err();
    assert!(error.to_string().contains("a window of 5"), "{error}");
}

#[test]
fn nan_is_what_the_standard_makes_of_it() {
    let x = || list(&[f32::NAN, -2.0, 0.0, 3.0]);
    let sign = floats(&run("Sign", 13, &[x()], &[], 1).unwrap(), 0);
    assert!(sign[0].is_nan() && sign[1..] == [-1.0, 0.0, 1.0], "{sign:?}");
    assert_eq!(
        ints(&run("Sign", 13, &[list(&[-7i64, 0, 2])], &[], 1).unwrap(), 0),
        [-1, 0, 1]
    );
    let y = run("ThresholdedRelu", 10, &[x()], &[], 1).unwrap();
    assert_eq!(floats(&y, 0), [0.0, 0.0, 0.0, 3.0]);
}

/// The behaviour for NaN in docs/differences.md: ONNX Runtime drops NaN.
#[test]
fn nan_is_the_largest_and_the_smallest() {
    let x = || tensor(&[1, 1, 3], &[1.0, f32::NAN, 3.0]);
    for op in ["ReduceMax", "ReduceMin", "GlobalMaxPool"] {
        assert!(floats(&run(op, 13, &[x()], &[], 1).unwrap(), 0)[0].is_nan(), "{op}");
    }
    let y = run("MaxPool", 12, &[x()], &[("kernel_shape", Attribute::Ints(vec![3]))], 2).unwrap();
    assert!(floats(&y, 0)[0].is_nan());
    assert_eq!(ints(&y, 1), [1]);
    for op in ["ArgMax", "ArgMin"] {
        assert_eq!(
            ints(&run(op, 13, &[x()], &[int("axis", 2)], 1).unwrap(), 0),
            [1],
            "{op}"
        );
    }
    let y = run("Hardmax", 13, &[x()], &[], 1).unwrap();
    assert_eq!(floats(&y, 0), [0.0, 1.0, 0.0]);
    let scalar = |zero: u8| tensor(&[], &[zero]);
    let step = tensor(&[], &[0.1f32]);
    let y = run("QuantizeLinear", 13, &[list(&[f32::NAN, 0.2]), step, scalar(3)], &[], 1).unwrap();
    assert_eq!(ints(&y, 0), [0, 5]);
}

/// As NumPy's results in f64.
#[test]
fn inverse_functions_and_norms_hold_to_the_ends_of_f32() {
    let large = [3e38f32, 1.8e38, 1e20, 1e9, 2e9, 7.0, 1.0];
    for x in large.into_iter().chain(large.map(|x| -x)).chain([1e-20, 0.0]) {
        let y = floats(&run("Asinh", 9, &[list(&[x])], &[], 1).unwrap(), 0)[0];
        let wanted = f64::from(x).asinh();
        assert!(
            (y - wanted).abs() <= 3e-7 * wanted.abs(),
            "asinh of {x}: {y}, not {wanted}"
        );
    }
    for x in large {
        let y = floats(&run("Acosh", 9, &[list(&[x])], &[], 1).unwrap(), 0)[0];
        let wanted = f64::from(x).acosh();
        assert!(
            (y - wanted).abs() <= 3e-7 * wanted.abs(),
            "acosh of {x}: {y}, not {wanted}"
        );
    }
    let whole = |op: &str, x: f32| floats(&run(op, 13, &[list(&[x])], &[], 1).unwrap(), 0)[0];
    assert_eq!(whole("Asinh", f32::NEG_INFINITY), f64::NEG_INFINITY);
    assert_eq!(whole("Acosh", f32::INFINITY), f64::INFINITY);
    assert!(whole("Acosh", 0.5).is_nan() && whole("Asinh", f32::NAN).is_nan());
    for (size, wanted) in [
        (1e20f32, 2e20),
        (1e-30, 2e-30),
        (3.0, 6.0),
        (0.0, 0.0),
        (f32::INFINITY, f64::INFINITY),
    ] {
        let y = floats(
            &run("ReduceL2", 13, &[list(&[size; 4])], &[int("keepdims", 0)], 1).unwrap(),
            0,
        )[0];
        assert!(y == wanted || (y - wanted).abs() <= 1e-6 * wanted, "{size}: {y}");
        let y = floats(&run("LpNormalization", 13, &[list(&[size; 4])], &[], 1).unwrap(), 0)[0];
        assert!(
            size.is_infinite() || (y - if size == 0.0 { 0.0 } else { 0.5 }).abs() < 1e-6,
            "{size}: {y}"
        );
    }
}

#[test]
fn attributes_are_honoured_or_refused() {
    let powers = |mode: &str, values: &[f32]| {
        let attributes = [int("to", ElementType::F8E8M0.number().into()), text("round_mode", mode)];
        run("Cast", 25, &[list(values)], &attributes, 1).map(|y| floats(&y, 0))
    };
    let values = [1.5, 2.1, 3.0, 6.0];
    assert_eq!(powers("down", &values).unwrap(), [1.0, 2.0, 2.0, 4.0]);
    assert_eq!(powers("up", &values).unwrap(), [2.0, 4.0, 4.0, 8.0]);
    assert_eq!(powers("nearest", &values).unwrap(), [2.0, 2.0, 4.0, 8.0]);
    assert!(
        powers("sideways", &values)
            .unwrap_err()
            .to_string()
            .contains("sideways")
    );
    // The quotient is 1.5 in f16, and just below it in f32.
    let (x, scale) = (list(&[1.499_9f32]), tensor(&[], &[1f32]));
    let quantized = |attributes: Attributes<'_>| {
        ints(
            &run("QuantizeLinear", 23, &[x.clone(), scale.clone()], attributes, 1).unwrap(),
            0,
        )
    };
    assert_eq!(quantized(&[]), [1]);
    assert_eq!(quantized(&[int("precision", ElementType::F16.number().into())]), [2]);
    let fails = |op: &str, attributes: Attributes<'_>, says: &str| {
        let error = run(op, 20, &[list(&[1f32])], attributes, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
        assert!(
            error.to_string().contains(says) && error.to_string().contains("the node"),
            "{error}"
        );
    };
    fails("Relu", &[int("alpha", 1)], "Relu has no attribute \"alpha\"");
    fails("Softmax", &[int("axes", 0)], "Softmax has no attribute \"axes\"");
    fails(
        "ReduceSum",
        &[("axes", Attribute::Ints(vec![0]))],
        "went with version 13",
    );
}

/// The values of PyTorch and ONNX Runtime; the reference has 5.816 and 2 in the second line.
#[test]
fn cubics_at_a_border_are_pytorchs() {
    let x = || {
        along(9)
            .host()
            .reshape(polygrad_tensor::Shape::from([1, 1, 3, 3]))
            .unwrap()
            .into()
    };
    let grid = || tensor(&[1, 1, 2, 2], &[1.3f32, 0.2, 1.6, -1.4]);
    for (padding, corners, wanted) in [
        ("border", 0, [6.169_526, 2.000_000_7]),
        ("border", 1, [5.926_253_8, 1.747_998_8]),
        ("reflection", 0, [6.203_37, 1.909_749_2]),
        ("reflection", 1, [5.766_503_3, 2.191_997_5]),
        ("zeros", 0, [0.259_195_48, 0.013_121_955]),
        ("zeros", 1, [4.444_666_4, 0.393_264_03]),
    ] {
        let attributes = [
            text("mode", "cubic"),
            text("padding_mode", padding),
            int("align_corners", corners),
        ];
        let y = floats(&run("GridSample", 20, &[x(), grid()], &attributes, 1).unwrap(), 0);
        let near = y.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(near, "{padding} {corners}: {y:?}, not {wanted:?}");
    }
}

#[test]
fn no_steps_leave_the_state() {
    for (op, gates, outputs) in [("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3)] {
        let weights = |columns: usize| tensor(&[1, gates * 2, columns], &vec![0.5f32; gates * 2 * columns]);
        let nothing = tensor::<f32>(&[0, 1, 3], &[]);
        let plain = [nothing.clone(), weights(3), weights(2)];
        let y = run(op, 14, &plain, &[int("hidden_size", 2)], outputs).unwrap();
        assert_eq!(y.tensor(0).unwrap().dims(), [0, 1, 1, 2], "{op}");
        assert_eq!(floats(&y, 1), [0.0, 0.0], "{op}");
        let mut inputs = plain.to_vec();
        inputs.extend([tensor(&[1, gates * 4], &vec![0f32; gates * 4]), list(&[0i32])]);
        inputs.extend((0..outputs - 1).map(|i| tensor(&[1, 1, 2], &[1.0 + i as f32, 4.0])));
        let y = run(op, 14, &inputs, &[], outputs).unwrap();
        assert_eq!(floats(&y, 1), [1.0, 4.0], "{op}");
        assert!(op != "LSTM" || floats(&y, 2) == [2.0, 4.0]);
        // A sequence of length 0 also keeps its state, and outputs zeros.
        inputs[0] = tensor(&[2, 1, 3], &[0.5f32; 6]);
        let y = run(op, 14, &inputs, &[], outputs).unwrap();
        assert_eq!((floats(&y, 0), floats(&y, 1)), (vec![0.0; 4], vec![1.0, 4.0]), "{op}");
        let error = run(op, 14, &plain, &[int("hidden_size", 3)], outputs).unwrap_err();
        assert!(error.to_string().contains("hidden_size is 3"), "{error}");
    }
}

/// As in ONNX Runtime: add is or, mul is and.
#[test]
fn truth_is_scattered_with_a_reduction() {
    let x = || list(&[true, false, true, false]);
    let updates = || list(&[true, true, false, false]);
    for (how, wanted) in [("none", [0, 1, 1, 0]), ("add", [1, 1, 1, 0]), ("mul", [0, 0, 1, 0])] {
        let attributes = [text("reduction", how)];
        let y = run(
            "ScatterElements",
            18,
            &[x(), list(&[0i64, 1, 0, 3]), updates()],
            &attributes,
            1,
        )
        .unwrap();
        assert_eq!(ints(&y, 0), wanted, "ScatterElements {how}");
        let places = tensor(&[4, 1], &[0i64, 1, 0, 3]);
        let y = run("ScatterND", 18, &[x(), places, updates()], &attributes, 1).unwrap();
        assert_eq!(
            (ints(&y, 0), y.tensor(0).unwrap().dtype()),
            (wanted.to_vec(), DType::Bool),
            "ScatterND {how}"
        );
    }
}

/// As in ONNX Runtime.
#[test]
fn nothing_is_reduced_to_something() {
    let empty = || tensor::<f32>(&[2, 0], &[]);
    for op in ["Hardmax", "Softmax", "LogSoftmax"] {
        for axis in [0, 1] {
            let y = run(op, 13, &[empty()], &[int("axis", axis)], 1).unwrap();
            assert_eq!(y.tensor(0).unwrap().dims(), [2, 0], "{op}");
        }
    }
    let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
    for (op, wanted) in [
        ("ReduceMean", 0.0),
        ("ReduceSum", 0.0),
        ("ReduceMax", low),
        ("ReduceMin", high),
        ("ReduceProd", 1.0),
        ("ReduceL1", 0.0),
        ("ReduceL2", 0.0),
        ("ReduceLogSum", low),
        ("ReduceLogSumExp", low),
        ("ReduceSumSquare", 0.0),
    ] {
        let y = run(op, 18, &[empty(), list(&[1i64])], &[int("keepdims", 0)], 1).unwrap();
        assert_eq!(floats(&y, 0), [wanted; 2], "{op}");
        let y = run(op, 18, &[empty(), list(&[0i64])], &[], 1).unwrap();
        assert_eq!(y.tensor(0).unwrap().dims(), [1, 0], "{op}");
    }
    let integers = tensor::<i32>(&[2, 0], &[]);
    let y = run("ReduceMean", 18, &[integers, list(&[1i64])], &[int("keepdims", 0)], 1).unwrap();
    assert_eq!(ints(&y, 0), [0, 0]);
}

#[test]
fn slopes_may_have_more_axes() {
    let slope = tensor(&[2, 2], &[2f32, 3.0, 4.0, 5.0]);
    let y = run("PRelu", 16, &[list(&[-1f32, 2.0]), slope], &[], 1).unwrap();
    assert_eq!(y.tensor(0).unwrap().dims(), [2, 2]);
    assert_eq!(floats(&y, 0), [-2.0, 2.0, -4.0, 2.0]);
}

/// Each element is computed from the start, as the standard says; accumulated sums would drift.
#[test]
fn ranges_do_not_drift() {
    let scalar = |v: f32| tensor(&[], &[v]);
    let y = run("Range", 11, &[scalar(0.0), scalar(1e4), scalar(0.1)], &[], 1).unwrap();
    let y = floats(&y, 0);
    assert_eq!(y.len(), 100_000);
    assert!(
        y.iter()
            .enumerate()
            .all(|(i, v)| (v - i as f64 * f64::from(0.1f32)).abs() < 5e-4)
    );
}

/// The variance is that of the values minus the mean.
#[test]
fn groups_far_from_zero_are_normalized() {
    let x: Vec<f32> = (0..12).map(|i| 1e4 + (i * i % 7) as f32).collect();
    let (ones, zeros) = (list(&[1f32; 4]), list(&[0f32; 4]));
    let y = run(
        "GroupNormalization",
        21,
        &[tensor(&[1, 4, 3], &x), ones, zeros],
        &[int("num_groups", 2)],
        1,
    )
    .unwrap();
    for (group, found) in x.chunks(6).zip(floats(&y, 0).chunks(6)) {
        let mean = group.iter().map(|&v| f64::from(v)).sum::<f64>() / 6.0;
        let variance = group.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / 6.0;
        for (&v, &found) in group.iter().zip(found) {
            let wanted = (f64::from(v) - mean) / (variance + 1e-5).sqrt();
            assert!((found - wanted).abs() < 1e-3, "{found}, not {wanted}");
        }
    }
}
