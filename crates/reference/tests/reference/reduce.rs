//! Reductions, positions of extremes, running sums and sorting.

use polygrad_core::{ArgOp, Axes, Backend, DType, ErrorKind, ReduceOp, Shape};

use crate::tools::{R, T, assert_fails, dims, elements, reals, tensor, vector, vector_of};

const NAN: f64 = f64::NAN;

fn reduce(op: ReduceOp, x: &T, axes: &[usize], keepdims: bool) -> T {
    R::reduce(op, x, Axes::new(axes.iter().copied()).unwrap(), keepdims).unwrap()
}

#[test]
fn reduces_over_any_axes() {
    let x = tensor(
        [2, 3, 2],
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0],
    );
    assert_eq!(reals(&reduce(ReduceOp::Sum, &x, &[1], false)), [9.0, 12.0, 27.0, 30.0]);
    assert_eq!(reals(&reduce(ReduceOp::Sum, &x, &[0, 2], false)), [18.0, 26.0, 34.0]);
    assert_eq!(reals(&reduce(ReduceOp::Sum, &x, &[2, 0], false)), [18.0, 26.0, 34.0]);
    assert_eq!(
        reals(&reduce(ReduceOp::Mean, &x, &[0], false)),
        [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    );
    assert_eq!(
        reals(&reduce(ReduceOp::Prod, &x, &[1], false)),
        [15.0, 48.0, 693.0, 960.0]
    );
    assert_eq!(reals(&reduce(ReduceOp::Max, &x, &[0, 1, 2], false)), [12.0]);
    assert_eq!(reals(&reduce(ReduceOp::Min, &x, &[1, 2], false)), [1.0, 7.0]);
    assert_eq!(dims(&reduce(ReduceOp::Sum, &x, &[0, 2], true)), [1, 3, 1]);
    assert_eq!(dims(&reduce(ReduceOp::Sum, &x, &[0, 1, 2], false)), [] as [usize; 0]);
    assert_eq!(reals(&reduce(ReduceOp::Max, &x, &[], false)), reals(&x));
}

#[test]
fn integers_keep_their_dtype_and_wrap() {
    let x = vector(&[200u8, 100]);
    assert_eq!(elements::<u8>(&reduce(ReduceOp::Sum, &x, &[0], false)), [44]);
    assert_eq!(elements::<u8>(&reduce(ReduceOp::Prod, &x, &[0], false)), [32]);
    assert_eq!(elements::<u8>(&reduce(ReduceOp::Max, &x, &[0], false)), [200]);
    let large = vector(&[i64::MAX, 1]);
    assert_eq!(elements::<i64>(&reduce(ReduceOp::Sum, &large, &[0], false)), [i64::MIN]);
}

#[test]
fn truth_values() {
    let x = tensor([2, 2], &[true, false, true, true]);
    assert_eq!(elements::<bool>(&reduce(ReduceOp::Any, &x, &[1], false)), [true, true]);
    assert_eq!(elements::<bool>(&reduce(ReduceOp::All, &x, &[1], false)), [false, true]);
    let sum = R::reduce(ReduceOp::Sum, &x, Axes::one(0), false);
    assert_fails(sum, ErrorKind::DType, "sum: not defined for bool");
    let any = R::reduce(ReduceOp::Any, &vector(&[1.0]), Axes::one(0), false);
    assert_fails(any, ErrorKind::DType, "any: not defined for f64");
    let mean = R::reduce(ReduceOp::Mean, &vector(&[1i64]), Axes::one(0), false);
    assert_fails(mean, ErrorKind::DType, "mean: not defined for i64");
}

#[test]
fn nothing_has_an_identity_or_is_an_error() {
    let x = tensor([2, 0], &[] as &[f64]);
    assert_eq!(reals(&reduce(ReduceOp::Sum, &x, &[1], false)), [0.0, 0.0]);
    assert_eq!(reals(&reduce(ReduceOp::Prod, &x, &[1], false)), [1.0, 1.0]);
    let flags = tensor([0], &[] as &[bool]);
    assert_eq!(elements::<bool>(&reduce(ReduceOp::Any, &flags, &[0], false)), [false]);
    assert_eq!(elements::<bool>(&reduce(ReduceOp::All, &flags, &[0], false)), [true]);
    for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Mean] {
        assert_fails(
            R::reduce(op, &x, Axes::one(1), true),
            ErrorKind::InvalidArgument,
            op.name(),
        );
        assert_eq!(dims(&reduce(op, &x, &[0], false)), [0]);
    }
    assert_fails(
        R::arg_reduce(ArgOp::Max, &x, 1, false),
        ErrorKind::InvalidArgument,
        "argmax",
    );
    assert_eq!(dims(&R::arg_reduce(ArgOp::Max, &x, 0, false).unwrap()), [0]);
}

#[test]
fn nan_propagates() {
    for values in [[NAN, 1.0, 2.0], [1.0, NAN, 2.0], [1.0, 2.0, NAN]] {
        for op in [
            ReduceOp::Sum,
            ReduceOp::Mean,
            ReduceOp::Prod,
            ReduceOp::Max,
            ReduceOp::Min,
        ] {
            assert!(
                reals(&reduce(op, &vector(&values), &[0], false))[0].is_nan(),
                "{op:?} {values:?}"
            );
        }
    }
}

#[test]
fn sums_are_accurate() {
    let x = R::expand(&vector(&[0.1f32]), Shape::from([100_000])).unwrap();
    let sum = f64::from(elements::<f32>(&reduce(ReduceOp::Sum, &x, &[0], false))[0]);
    assert_eq!(sum, f64::from((f64::from(0.1f32) * 1e5) as f32));
    let cancelling = vector(&[1e300, 1.0, -1e300]);
    assert_eq!(reals(&reduce(ReduceOp::Sum, &cancelling, &[0], false)), [1.0]);
    // A sum accumulated in f16 would stop at 2048.
    let ones = R::expand(&vector_of(DType::F16, &[1.0]), Shape::from([3000])).unwrap();
    assert_eq!(reals(&reduce(ReduceOp::Sum, &ones, &[0], false)), [3000.0]);
}

#[test]
fn the_first_extreme_wins_and_nan_is_extreme() {
    let x = tensor([2, 4], &[1.0, 3.0, 3.0, 0.0, 2.0, NAN, 9.0, NAN]);
    let of = |op| elements::<i64>(&R::arg_reduce(op, &x, 1, false).unwrap());
    assert_eq!(of(ArgOp::Max), [1, 1]);
    assert_eq!(of(ArgOp::Min), [3, 1]);
    let columns = R::arg_reduce(ArgOp::Max, &x, 0, true).unwrap();
    assert_eq!(dims(&columns), [1, 4]);
    assert_eq!(elements::<i64>(&columns), [1, 1, 1, 1]);
    let ints = vector(&[4i32, -1, -1, 4]);
    assert_eq!(
        elements::<i64>(&R::arg_reduce(ArgOp::Max, &ints, 0, false).unwrap()),
        [0]
    );
    assert_eq!(
        elements::<i64>(&R::arg_reduce(ArgOp::Min, &ints, 0, false).unwrap()),
        [1]
    );
}

#[test]
fn running_sums() {
    let x = tensor([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(reals(&R::cumsum(&x, 1).unwrap()), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    assert_eq!(reals(&R::cumsum(&x, 0).unwrap()), [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    assert_eq!(
        elements::<u8>(&R::cumsum(&vector(&[200u8, 100, 1]), 0).unwrap()),
        [200, 44, 45]
    );
    assert_fails(
        R::cumsum(&vector(&[true]), 0),
        ErrorKind::DType,
        "cumsum: not defined for bool",
    );
}

#[test]
fn sorts_stably_with_nan_last() {
    let x = vector(&[3.0, NAN, 1.0, 3.0, -1.0]);
    let (up, from) = R::sort(&x, 0, false).unwrap();
    assert_eq!(reals(&up)[..4], [-1.0, 1.0, 3.0, 3.0]);
    assert!(reals(&up)[4].is_nan());
    assert_eq!(elements::<i64>(&from), [4, 2, 0, 3, 1]);
    let (down, from) = R::sort(&x, 0, true).unwrap();
    assert_eq!(reals(&down)[1..], [3.0, 3.0, 1.0, -1.0]);
    assert_eq!(elements::<i64>(&from), [1, 0, 3, 2, 4]);
    let table = tensor([3, 2], &[2i32, 1, 1, 3, 3, 2]);
    let (sorted, from) = R::sort(&table, 0, false).unwrap();
    assert_eq!(elements::<i32>(&sorted), [1, 1, 2, 2, 3, 3]);
    assert_eq!(elements::<i64>(&from), [1, 0, 0, 2, 2, 1]);
    let (flags, _) = R::sort(&vector(&[true, false]), 0, false).unwrap();
    assert_eq!(elements::<bool>(&flags), [false, true]);
}
