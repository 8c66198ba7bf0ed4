//! Matrix products, linear maps, embeddings and broadcasting sums.

use polygrad_core::{Backend, ErrorKind, Shape};

use crate::tools::{R, assert_close, assert_fails, assert_gradient, dims, elements, normal, reals, tensor, vector};

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

#[test]
fn linear_maps_of_any_rank() {
    let (weight, bias) = (tensor([2, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]), vector(&[10.0, 20.0]));
    let expected = [(vec![2], vec![11.0, 26.0]), (vec![2, 2], vec![11.0, 26.0, 14.0, 35.0])];
    for (shape, values) in expected {
        let rows = values.len() / 2;
        let x: Vec<f64> = (1..=3 * rows).map(|i| i as f64).collect();
        let mut in_shape = shape.clone();
        *in_shape.last_mut().unwrap() = 3;
        let x = R::reshape(&vector(&x), Shape::new(&in_shape).unwrap()).unwrap();
        let y = R::linear(&x, &weight, Some(&bias), None).unwrap();
        assert_eq!(dims(&y), shape);
        assert_eq!(reals(&y), values);
    }
    let x = normal(&[2, 4, 3], 1);
    let bare = R::linear(&x, &weight, None, None).unwrap();
    assert_eq!(dims(&bare), [2, 4, 2]);
    let shifted = R::linear(&x, &weight, Some(&bias), None).unwrap();
    assert_close(
        &reals(&R::sub(&shifted, &bare).unwrap()),
        &[10.0, 20.0].repeat(8),
        1e-14,
    );
}

#[test]
fn sums_undo_broadcasting() {
    let grad = normal(&[4, 2, 3], 1);
    for small in [
        &[3][..],
        &[2, 1],
        &[1, 1],
        &[4, 1, 3],
        &[4, 2, 3],
        &[],
        &[1, 2, 3],
        &[1],
    ] {
        let x = normal(small, 2);
        let analytic = R::sum_to(&grad, R::shape(&x)).unwrap();
        assert_gradient(|x| R::expand(x, Shape::from([4, 2, 3])).unwrap(), &x, &grad, &analytic);
    }
    let none = R::sum_to(&tensor([0, 2], &[] as &[f64]), Shape::from([2])).unwrap();
    assert_eq!(reals(&none), [0.0, 0.0]);
}

#[test]
fn embeddings_and_their_gradient() {
    let weight = normal(&[4, 3], 1);
    let index = tensor([2, 3], &[3i64, 0, 3, 1, 1, 3]);
    let rows = R::embedding(&weight, &index, None).unwrap();
    assert_eq!(dims(&rows), [2, 3, 3]);
    assert_eq!(reals(&rows)[3..6], reals(&weight)[..3]);
    let grad = normal(&[2, 3, 3], 2);
    let analytic = R::embedding_backward(&grad, &index, 4, None).unwrap();
    assert_gradient(|w| R::embedding(w, &index, None).unwrap(), &weight, &grad, &analytic);
    for row in 0..4 {
        let without = R::embedding_backward(&grad, &index, 4, Some(row)).unwrap();
        let mut expected = reals(&analytic);
        expected[row * 3..][..3].fill(0.0);
        assert_eq!(dims(&without), [4, 3]);
        assert_eq!(reals(&without), expected);
    }
    let single = R::embedding(&weight, &tensor([], &[2i64]), None).unwrap();
    assert_eq!(
        (dims(&single), reals(&single)),
        (vec![3], reals(&weight)[6..9].to_vec())
    );
    assert_fails(
        R::embedding(&weight, &vector(&[4i64]), None),
        ErrorKind::OutOfRange,
        "index 4",
    );
    let outside = R::embedding_backward(&normal(&[1, 3], 3), &vector(&[-1i64]), 4, None);
    assert_fails(outside, ErrorKind::OutOfRange, "index -1");
}
