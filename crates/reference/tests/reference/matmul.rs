//! Matrix products.

use polygrad_core::{Backend, ErrorKind};

use crate::tools::{R, assert_fails, dims, elements, normal, reals, tensor, vector};

#[test]
fn matrix_products() {
    let a = tensor([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = tensor([3, 2], &[1.0, 0.0, 0.0, 1.0, 2.0, 2.0]);
    assert_eq!(reals(&R::matmul(&a, &b).unwrap()), [7.0, 8.0, 16.0, 17.0]);
    // Batches [2, 1] and [3] broadcast to [2, 3].
    let (a, b) = (normal(&[2, 1, 2, 4], 1), normal(&[3, 4, 5], 2));
    let y = R::matmul(&a, &b).unwrap();
    assert_eq!(dims(&y), [2, 3, 2, 5]);
    let (x, w, found) = (reals(&a), reals(&b), reals(&y));
    for (i, value) in found.iter().enumerate() {
        let (p, q, m, n) = (i / 30, i / 10 % 3, i / 5 % 2, i % 5);
        let sum: f64 = (0..4).map(|k| x[p * 8 + m * 4 + k] * w[q * 20 + k * 5 + n]).sum();
        assert!((value - sum).abs() < 1e-14);
    }
    let nothing = R::matmul(&tensor([2, 0], &[] as &[f64]), &tensor([0, 2], &[] as &[f64])).unwrap();
    assert_eq!(reals(&nothing), [0.0; 4]);
    let single = tensor([1, 2], &[1.0f32, 1.0]);
    let y = R::matmul(&single, &tensor([2, 1], &[0.1f32, 1e-9])).unwrap();
    assert_eq!(elements::<f32>(&y), [0.1f32]);
}

#[test]
fn products_of_integers_wrap() {
    let y = R::matmul(&tensor([1, 2], &[65_536i32, 1]), &tensor([2, 1], &[65_536i32, 5])).unwrap();
    assert_eq!(elements::<i32>(&y), [5]);
    let wild = tensor([1, 2], &[6_364_136_223_846_793_005i64, 1_442_695_040_888_963_407]);
    let y = R::matmul(&wild, &tensor([2, 1], &[3i64, 7])).unwrap();
    assert_eq!(elements::<i64>(&y), [-7_702_214_189_655_980_368]);
}

#[test]
fn matrices_that_do_not_fit_are_errors() {
    let a = tensor([2, 3], &[1.0; 6]);
    assert_fails(R::matmul(&a, &a), ErrorKind::Shape, "matmul");
    assert_fails(R::matmul(&a, &vector(&[1.0; 3])), ErrorKind::Shape, "rank 2");
    let bools = tensor([1, 1], &[true]);
    assert_fails(
        R::matmul(&bools, &bools),
        ErrorKind::DType,
        "matmul: not defined for bool",
    );
    let (b, c) = (normal(&[2, 1, 1], 1), normal(&[3, 1, 1], 1));
    assert_fails(R::matmul(&b, &c), ErrorKind::Shape, "do not broadcast");
}
