//! Elementwise functions, at the ends of f32 and in between.

use super::*;

/// Zeros, infinities, NaN, and powers of ten of both signs.
fn values() -> Vec<f32> {
    let mut values = vec![
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
    ];
    for power in -37..=38 {
        values.extend([10f32.powi(power), -10f32.powi(power)]);
    }
    for near in [
        0.3f32, 0.5, 0.9999, 1.0001, 1.5, 2.5, 3.0, 20.5, 44.0, 60.0, 88.0, 88.5, 89.0, 103.0,
    ] {
        values.extend([near, -near]);
    }
    values
}

/// Intended differences: the op, and the values.
fn differs(op: &str, x: f32) -> bool {
    match op {
        // The limit is 0.
        "Gelu" | "GeluTanh" => x == f32::NEG_INFINITY,
        _ => false,
    }
}

#[test]
fn functions_are_as_there_from_end_to_end() {
    let float = |name, value| (name, Attribute::Float(value));
    let ops: Vec<(&str, Vec<(&str, Attribute)>)> = [
        "Abs",
        "Neg",
        "Sign",
        "Exp",
        "Log",
        "Sqrt",
        "Reciprocal",
        "Floor",
        "Ceil",
        "Round",
        "Erf",
        "Asin",
        "Acos",
        "Atan",
        "Sinh",
        "Cosh",
        "Asinh",
        "Acosh",
        "Atanh",
        "Relu",
        "Tanh",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Elu",
        "LeakyRelu",
        "Celu",
        "Selu",
        "HardSigmoid",
        "HardSwish",
        "ThresholdedRelu",
        "Mish",
        "Gelu",
        "Shrink",
        "IsNaN",
        "IsInf",
    ]
    .into_iter()
    .map(|op| (op, Vec::new()))
    .chain([
        ("Gelu", vec![("approximate", text("tanh"))]),
        ("Elu", vec![float("alpha", 0.1)]),
        ("Celu", vec![float("alpha", 0.01)]),
        ("Celu", vec![float("alpha", 1.5)]),
        ("ThresholdedRelu", vec![float("alpha", -1.0)]),
        ("Shrink", vec![float("lambd", 2.0), float("bias", 1.0)]),
        ("HardSigmoid", vec![float("alpha", 3.0), float("beta", -0.1)]),
    ])
    .collect();
    let mut wrong = Vec::new();
    for (op, attributes) in &ops {
        let Some(pair) = Pair::new(op, 22, &[input(ElementType::F32, &[0])], attributes) else {
            return;
        };
        let [ours, theirs] = pair.first(&[list(&values())]);
        for ((&a, &b), x) in ours.1.iter().zip(&theirs.1).zip(values()) {
            // ONNX Runtime's results lose precision in differences from 1.
            let relative = (a - b).abs() <= 4e-6 * b.abs() + 2e-7;
            let same = a == b || (a.is_nan() && b.is_nan()) || relative;
            if !same && !differs(op, x) {
                wrong.push(format!("{op} {attributes:?} of {x:e} is {a:e}, {b:e} there"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_sigmoid_near_0_keeps_its_digits_here_alone() {
    let Some(pair) = Pair::new("Sigmoid", 22, &[input(ElementType::F32, &[0])], &[]) else {
        return;
    };
    let [ours, theirs] = pair.first(&[list(&[-20.0f32, -8.0])]);
    for (i, (x, most)) in [(-20.0f64, 3e-9), (-8.0, 1e-7)].into_iter().enumerate() {
        let right = 1.0 / (1.0 + (-x).exp());
        assert!((ours.1[i] - right).abs() < 1e-6 * right, "{} for {right}", ours.1[i]);
        let off = (theirs.1[i] - right).abs();
        assert!(off > 1e-4 * right && off < most, "{} for {right}", theirs.1[i]);
    }
}
