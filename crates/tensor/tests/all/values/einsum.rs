//! Einstein sums against explicit loops.

use polygrad_tensor::Result;

use super::{Tensor, device};

fn reals(shape: &[usize]) -> Tensor {
    let numel: usize = shape.iter().product();
    let values = (0..numel).map(|i| (i as f64 * 0.7).sin()).collect();
    Tensor::from_vec::<f64>(values, shape, &device()).unwrap()
}

/// Checks every element against a sum of products.
#[track_caller]
fn equals(result: Result<Tensor>, shape: &[usize], element: impl Fn(&[usize]) -> f64) {
    let result = result.unwrap();
    assert_eq!(result.dims(), shape);
    for (flat, value) in result.to_vec::<f64>().unwrap().into_iter().enumerate() {
        let mut rest = flat;
        let mut at = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            (at[axis], rest) = (rest % shape[axis], rest / shape[axis]);
        }
        let expected = element(&at);
        assert!(
            (value - expected).abs() < 1e-12,
            "at {at:?}: {value} and not {expected}"
        );
    }
}

/// The element of a tensor made by [`reals`], at a position.
fn at(shape: &[usize], position: &[usize]) -> f64 {
    let flat = shape.iter().zip(position).fold(0, |flat, (dim, i)| flat * dim + i);
    (flat as f64 * 0.7).sin()
}

#[test]
fn products_of_two() {
    let (p, q) = ([2, 3], [3, 4]);
    let (a, b) = (reals(&p), reals(&q));
    let product = |i, k| (0..3).map(|j| at(&p, &[i, j]) * at(&q, &[j, k])).sum::<f64>();
    equals(Tensor::einsum("ij,jk->ik", &[&a, &b]), &[2, 4], |x| product(x[0], x[1]));
    equals(Tensor::einsum("ij,jk", &[&a, &b]), &[2, 4], |x| product(x[0], x[1]));
    equals(Tensor::einsum(" ij , jk -> ki ", &[&a, &b]), &[4, 2], |x| {
        product(x[1], x[0])
    });
    equals(Tensor::einsum("ij,jk->", &[&a, &b]), &[], |_| {
        (0..2)
            .flat_map(|i| (0..4).map(move |k| (i, k)))
            .map(|(i, k)| product(i, k))
            .sum()
    });
    equals(Tensor::einsum("ij,kl->kj", &[&a, &b]), &[3, 3], |x| {
        let column: f64 = (0..2).map(|i| at(&p, &[i, x[1]])).sum();
        column * (0..4).map(|l| at(&q, &[x[0], l])).sum::<f64>()
    });
    equals(Tensor::einsum("ij,ij->ij", &[&a, &a]), &[2, 3], |x| at(&p, x).powi(2));
}

#[test]
fn letters_that_stand_twice_in_one_operand() {
    let p = [3, 3, 2];
    let x = reals(&p);
    equals(Tensor::einsum("iij->j", &[&x]), &[2], |o| {
        (0..3).map(|i| at(&p, &[i, i, o[0]])).sum()
    });
    equals(Tensor::einsum("iij->ji", &[&x]), &[2, 3], |o| {
        at(&p, &[o[1], o[1], o[0]])
    });
    equals(Tensor::einsum("iij", &[&x]), &[2], |o| {
        (0..3).map(|i| at(&p, &[i, i, o[0]])).sum()
    });
}

#[test]
fn an_ellipsis_stands_for_further_axes() {
    let (p, q) = ([2, 1, 2, 3], [4, 3, 2]);
    let (a, b) = (reals(&p), reals(&q));
    let product = |x: &[usize]| -> f64 {
        (0..3)
            .map(|j| at(&p, &[x[0], 0, x[2], j]) * at(&q, &[x[1], j, x[3]]))
            .sum()
    };
    equals(Tensor::einsum("...ij,...jk->...ik", &[&a, &b]), &[2, 4, 2, 2], product);
    equals(Tensor::einsum("...ij,...jk", &[&a, &b]), &[2, 4, 2, 2], product);
    equals(Tensor::einsum("i...->...i", &[&b]), &[3, 2, 4], |x| {
        at(&q, &[x[2], x[0], x[1]])
    });
    equals(Tensor::einsum("...->", &[&b]), &[], |_| {
        (0..24).map(|i| (i as f64 * 0.7).sin()).sum()
    });
    equals(Tensor::einsum("...,i->...", &[&reals(&[]), &reals(&[3])]), &[], |_| 0.0);
}

#[test]
fn three_operands() {
    let (p, q) = ([2, 3], [3, 2]);
    let (a, b, c) = (reals(&p), reals(&q), reals(&[2]));
    equals(Tensor::einsum("ij,jk,k->i", &[&a, &b, &c]), &[2], |x| {
        let terms = (0..3).flat_map(|j| (0..2).map(move |k| (j, k)));
        terms
            .map(|(j, k)| at(&p, &[x[0], j]) * at(&q, &[j, k]) * at(&[2], &[k]))
            .sum()
    });
}
