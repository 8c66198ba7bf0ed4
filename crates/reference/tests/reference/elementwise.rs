//! Unary and binary ops, comparisons, select and cast.

use polygrad_core::{Backend, BinaryOp, CompareOp, DType, ErrorKind, Scalar, UnaryOp, bf16, f16};

use crate::tools::{R, assert_fails, dims, elements, reals, tensor, vector, vector_of};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

#[test]
fn functions_are_precise_where_naive_ones_are_not() {
    let tiny = vector(&[1e-20]);
    assert_eq!(reals(&R::unary(UnaryOp::Expm1, &tiny).unwrap()), [1e-20]);
    assert_eq!(reals(&R::unary(UnaryOp::Log1p, &tiny).unwrap()), [1e-20]);
    let far = reals(&R::unary(UnaryOp::Sigmoid, &vector(&[-740.0, 740.0])).unwrap());
    assert!(far[0] > 0.0 && far[0] < 1e-300 && far[1] == 1.0, "{far:?}");
}

#[test]
fn predicates_give_bool() {
    let x = vector(&[NAN, INF, -INF, 0.0, -0.0, 2.0]);
    let cases = [
        (UnaryOp::LogicalNot, [false, false, false, true, true, false]),
        (UnaryOp::IsNan, [true, false, false, false, false, false]),
        (UnaryOp::IsInf, [false, true, true, false, false, false]),
        (UnaryOp::IsFinite, [false, false, false, true, true, true]),
    ];
    for (op, expected) in cases {
        assert_eq!(elements::<bool>(&R::unary(op, &x).unwrap()), expected);
    }
    let ints = vector(&[0i64, 7]);
    assert_eq!(
        elements::<bool>(&R::unary(UnaryOp::LogicalNot, &ints).unwrap()),
        [true, false]
    );
    assert_eq!(
        elements::<bool>(&R::unary(UnaryOp::IsFinite, &ints).unwrap()),
        [true, true]
    );
    assert_eq!(
        elements::<bool>(&R::unary(UnaryOp::IsNan, &vector(&[true])).unwrap()),
        [false]
    );
}

#[test]
fn truncation_is_towards_zero() {
    let y = reals(&R::unary(UnaryOp::Trunc, &vector(&[-2.5, -0.5, 0.0, 1.5, -INF, NAN])).unwrap());
    assert_eq!(y[..5], [-2.0, 0.0, 0.0, 1.0, -INF]);
    assert!(y[5].is_nan());
}

#[test]
fn unary_on_integers_wraps() {
    let x = vector(&[i32::MIN, -3, 0, 5]);
    let of = |op| elements::<i32>(&R::unary(op, &x).unwrap());
    assert_eq!(of(UnaryOp::Neg), [i32::MIN, 3, 0, -5]);
    assert_eq!(of(UnaryOp::Abs), [i32::MIN, 3, 0, 5]);
    assert_eq!(of(UnaryOp::Sign), [-1, -1, 0, 1]);
    assert_eq!(of(UnaryOp::Relu), [0, 0, 0, 5]);
    assert_eq!(of(UnaryOp::Floor), [i32::MIN, -3, 0, 5]);
    assert_eq!(
        elements::<u8>(&R::unary(UnaryOp::Neg, &vector(&[1u8, 0])).unwrap()),
        [255, 0]
    );
    let least = vector(&[i64::MIN]);
    assert_eq!(elements::<i64>(&R::unary(UnaryOp::Abs, &least).unwrap()), [i64::MIN]);
}

#[test]
fn binary_on_integers() {
    let (a, b) = (vector(&[7i64, -7, 7, -7, 7]), vector(&[2i64, 2, -2, -2, 0]));
    let of = |op| elements::<i64>(&R::binary(op, &a, &b).unwrap());
    assert_eq!(of(BinaryOp::Div), [3, -3, -3, 3, 0]);
    assert_eq!(of(BinaryOp::Remainder), [1, 1, -1, -1, 0]);
    assert_eq!(of(BinaryOp::Pow), [49, 49, 0, 0, 1]);
    assert_eq!(of(BinaryOp::Maximum), [7, 2, 7, -2, 7]);
    assert_eq!(of(BinaryOp::And), [2, 0, 6, -8, 0]);
    assert_eq!(of(BinaryOp::Or), [7, -5, -1, -1, 7]);
    assert_eq!(of(BinaryOp::Xor), [5, -5, -7, 7, 7]);
    let (bases, powers) = (vector(&[1i64, -1, -1, 0, 3, 2]), vector(&[-5i64, -4, -3, -1, 50, 63]));
    let pow = elements::<i64>(&R::binary(BinaryOp::Pow, &bases, &powers).unwrap());
    assert_eq!(pow, [1, 1, -1, 0, 3i64.wrapping_pow(50), i64::MIN]);
    let wrapped = R::binary(BinaryOp::Mul, &vector(&[200u8]), &vector(&[2u8])).unwrap();
    assert_eq!(elements::<u8>(&wrapped), [144]);
    let least = R::binary(BinaryOp::Div, &vector(&[i32::MIN]), &vector(&[-1i32])).unwrap();
    assert_eq!(elements::<i32>(&least), [i32::MIN]);
    let (a, b) = (vector(&[i64::MIN]), vector(&[-1i64]));
    assert_eq!(elements::<i64>(&R::div(&a, &b).unwrap()), [i64::MIN]);
    assert_eq!(elements::<i64>(&R::binary(BinaryOp::Remainder, &a, &b).unwrap()), [0]);
    // Not representable in f64.
    let large = R::add(&vector(&[(1i64 << 53) + 1]), &vector(&[0i64])).unwrap();
    assert_eq!(elements::<i64>(&large), [(1i64 << 53) + 1]);
}

#[test]
fn binary_on_bool_is_logic() {
    let (a, b) = (vector(&[false, false, true, true]), vector(&[false, true, false, true]));
    let or = [false, true, true, true];
    let and = [false, false, false, true];
    for (op, expected) in [
        (BinaryOp::Add, or),
        (BinaryOp::Or, or),
        (BinaryOp::Maximum, or),
        (BinaryOp::Mul, and),
        (BinaryOp::And, and),
        (BinaryOp::Minimum, and),
        (BinaryOp::Xor, [false, true, true, false]),
    ] {
        assert_eq!(elements::<bool>(&R::binary(op, &a, &b).unwrap()), expected);
    }
}

#[test]
fn senseless_combinations_are_errors_that_name_op_and_dtype() {
    let (flag, number, real) = (vector(&[true]), vector(&[1i32]), vector(&[1.0f32]));
    assert_fails(R::sub(&flag, &flag), ErrorKind::DType, "sub: not defined for bool");
    assert_fails(
        R::binary(BinaryOp::And, &real, &real),
        ErrorKind::DType,
        "bitwise_and: not defined for f32",
    );
    assert_fails(
        R::binary(BinaryOp::Atan2, &number, &number),
        ErrorKind::DType,
        "atan2: not defined for i32",
    );
    assert_fails(
        R::unary(UnaryOp::Exp, &number),
        ErrorKind::DType,
        "exp: not defined for i32",
    );
    assert_fails(
        R::unary(UnaryOp::Neg, &flag),
        ErrorKind::DType,
        "neg: not defined for bool",
    );
    assert_fails(R::add(&real, &number), ErrorKind::DType, "f32[1], i32[1]");
    assert_fails(R::compare(CompareOp::Lt, &real, &number), ErrorKind::DType, "lt");
    assert_fails(
        R::add(&real, &vector_of(DType::F64, &[1.0])),
        ErrorKind::DType,
        "f64[1]",
    );
    assert_fails(
        R::add(&vector(&[1.0, 2.0]), &vector(&[1.0, 2.0, 3.0])),
        ErrorKind::Shape,
        "do not broadcast",
    );
    assert_fails(R::select(&real, &real, &real), ErrorKind::DType, "where");
}

#[test]
fn operands_broadcast() {
    let (column, row) = (tensor([2, 1], &[10i32, 20]), vector(&[1i32, 2, 3]));
    let sum = R::add(&column, &row).unwrap();
    assert_eq!(dims(&sum), [2, 3]);
    assert_eq!(elements::<i32>(&sum), [11, 12, 13, 21, 22, 23]);
    let condition = tensor([2, 1, 1], &[true, false]);
    let chosen = R::select(&condition, &column, &row).unwrap();
    assert_eq!(dims(&chosen), [2, 2, 3]);
    assert_eq!(elements::<i32>(&chosen), [10, 10, 10, 20, 20, 20, 1, 2, 3, 1, 2, 3]);
    let empty = R::add(&tensor([0, 1], &[] as &[i32]), &row).unwrap();
    assert_eq!(dims(&empty), [0, 3]);
}

#[test]
fn casts_as_elements_convert() {
    let x = vector(&[-1.5, 2.9, 1e20, NAN, 0.0]);
    assert_eq!(
        elements::<i32>(&R::cast(&x, DType::I32).unwrap()),
        [-1, 2, i32::MAX, 0, 0]
    );
    assert_eq!(elements::<u8>(&R::cast(&x, DType::U8).unwrap()), [0, 2, 255, 0, 0]);
    assert_eq!(
        elements::<bool>(&R::cast(&x, DType::Bool).unwrap()),
        [true, true, true, true, false]
    );
    let ints = vector(&[300i64, -1, (1 << 24) + 1, (1 << 62) + (1 << 38) + 1]);
    assert_eq!(elements::<u8>(&R::cast(&ints, DType::U8).unwrap()), [44, 255, 1, 1]);
    // Rounded once: through f64 the last value would be a tie, and be rounded down.
    let rounded = elements::<f32>(&R::cast(&ints, DType::F32).unwrap());
    assert_eq!(rounded, [300.0, -1.0, 16_777_216.0, ((1i64 << 62) + (1 << 39)) as f32]);
    assert_eq!(
        reals(&R::cast(&vector(&[true, false]), DType::F16).unwrap()),
        [1.0, 0.0]
    );
}

#[test]
fn results_are_rounded_once_to_the_dtype() {
    let third = |dtype| R::div(&vector_of(dtype, &[1.0]), &vector_of(dtype, &[3.0])).unwrap();
    assert_eq!(elements::<f32>(&third(DType::F32)), [1.0f32 / 3.0]);
    assert_eq!(elements::<f16>(&third(DType::F16)), [f16::from_f32(1.0 / 3.0)]);
    assert_eq!(elements::<bf16>(&third(DType::BF16)), [bf16::from_f32(1.0 / 3.0)]);
    let huge = vector_of(DType::F16, &[60000.0]);
    assert_eq!(reals(&R::add(&huge, &huge).unwrap()), [INF]);
    // 1 + 2^-11 + 2^-40 lies just above the middle of two neighbours in f16; f32 would put it on the middle.
    let value = 1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -40);
    assert_eq!(reals(&vector_of(DType::F16, &[value])), [1.0 + f64::powi(2.0, -10)]);
}

#[test]
fn scalars_take_the_tensors_dtype() {
    let x = vector(&[1u8, 2]);
    assert_eq!(
        elements::<u8>(&R::binary_scalar(BinaryOp::Sub, &x, Scalar::Int(300), true).unwrap()),
        [43, 42]
    );
    let y = vector(&[1.0, 4.0]);
    assert_eq!(reals(&R::scalar_sub(1.0, &y).unwrap()), [0.0, -3.0]);
    assert_eq!(
        reals(&R::binary_scalar(BinaryOp::Div, &y, Scalar::Float(2.0), false).unwrap()),
        [0.5, 2.0]
    );
    assert_eq!(
        elements::<bool>(&R::compare_scalar(CompareOp::Ge, &y, Scalar::Int(2)).unwrap()),
        [false, true]
    );
}
