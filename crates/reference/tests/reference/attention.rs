//! Attention against a loop over queries and keys.

use polygrad_core::{Backend, Shape};

use crate::tools::{R, T, assert_close, dims, normal, reals, tensor};

const SCALE: f64 = 0.4;

/// One head, by the definition: `bias` is added to a score, and minus infinity hides the key.
fn attend(q: &[Vec<f64>], k: &[Vec<f64>], v: &[Vec<f64>], bias: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let width = v.first().map_or(0, Vec::len);
    let row = |(i, q): (usize, &Vec<f64>)| {
        let weight =
            |(j, k): (usize, &Vec<f64>)| (SCALE * q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() + bias(i, j)).exp();
        let weights: Vec<f64> = k.iter().enumerate().map(weight).collect();
        let total: f64 = weights.iter().sum();
        let share = |w: f64| if total == 0.0 { 0.0 } else { w / total };
        (0..width)
            .map(|e| weights.iter().zip(v).map(|(&w, v)| share(w) * v[e]).sum::<f64>())
            .collect::<Vec<_>>()
    };
    q.iter().enumerate().flat_map(row).collect()
}

fn heads(x: &T) -> Vec<Vec<Vec<f64>>> {
    let shape = R::shape(x);
    let [.., rows, columns] = shape[..] else {
        panic!("a matrix was wanted")
    };
    let values = reals(x);
    let rows_of = |head: &[f64]| head.chunks(columns).map(<[f64]>::to_vec).collect();
    values.chunks(rows * columns).map(rows_of).collect()
}

fn expected(q: &T, k: &T, v: &T, bias: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
    let (q, k, v) = (heads(q), heads(k), heads(v));
    (0..q.len())
        .flat_map(|h| attend(&q[h], &k[h], &v[h], |i, j| bias(h, i, j)))
        .collect()
}

#[test]
fn plain_and_causal_for_fewer_equal_and_more_keys() {
    for keys in [2, 4, 6] {
        let (q, k, v) = (
            normal(&[2, 3, 4, 5], 1),
            normal(&[2, 3, keys, 5], 2),
            normal(&[2, 3, keys, 2], 3),
        );
        let plain = R::attention(&q, &k, &v, None, SCALE, false).unwrap();
        assert_eq!(dims(&plain), [2, 3, 4, 2]);
        assert_close(&reals(&plain), &expected(&q, &k, &v, |_, _, _| 0.0), 1e-13);
        let causal = R::attention(&q, &k, &v, None, SCALE, true).unwrap();
        let bias = |_, i: usize, j: usize| if j + 4 <= i + keys { 0.0 } else { f64::NEG_INFINITY };
        assert_close(&reals(&causal), &expected(&q, &k, &v, bias), 1e-13);
        if keys == 2 {
            // The first two of four queries see none of two keys.
            assert_eq!(reals(&causal)[..4], [0.0; 4]);
        }
    }
}

#[test]
fn masks_of_both_kinds_broadcast_and_may_hide_all() {
    let (q, k, v) = (normal(&[2, 3, 4], 1), normal(&[2, 5, 4], 2), normal(&[2, 5, 3], 3));
    // Query 1 sees nothing.
    let seen: Vec<bool> = (0..15).map(|i| i / 5 != 1 && i % 4 != 0).collect();
    let hidden = |i: usize, j: usize| if seen[i * 5 + j] { 0.0 } else { f64::NEG_INFINITY };
    let mask = tensor([3, 5], &seen);
    let y = R::attention(&q, &k, &v, Some(&mask), SCALE, false).unwrap();
    assert_close(&reals(&y), &expected(&q, &k, &v, |_, i, j| hidden(i, j)), 1e-13);
    assert_eq!(reals(&y)[3..6], [0.0; 3]);

    let causal = R::attention(&q, &k, &v, Some(&mask), SCALE, true).unwrap();
    let both = |_, i: usize, j: usize| if j <= i + 2 { hidden(i, j) } else { f64::NEG_INFINITY };
    assert_close(&reals(&causal), &expected(&q, &k, &v, both), 1e-13);

    let added = normal(&[2, 1, 5], 4);
    let bias = reals(&added);
    let y = R::attention(&q, &k, &v, Some(&added), SCALE, false).unwrap();
    assert_close(&reals(&y), &expected(&q, &k, &v, |h, _, j| bias[h * 5 + j]), 1e-13);

    let float: Vec<f64> = (0..15).map(|i| hidden(i / 5, i % 5)).collect();
    let y = R::attention(&q, &k, &v, Some(&tensor([3, 5], &float)), SCALE, false).unwrap();
    assert_close(&reals(&y), &expected(&q, &k, &v, |_, i, j| hidden(i, j)), 1e-13);
}

#[test]
fn nothing_to_see_gives_zeros_and_nan_is_not_hidden() {
    let q = normal(&[3, 4], 1);
    let (k, v) = (tensor([0, 4], &[] as &[f64]), tensor([0, 2], &[] as &[f64]));
    for causal in [false, true] {
        assert_eq!(reals(&R::attention(&q, &k, &v, None, SCALE, causal).unwrap()), [0.0; 6]);
    }
    let (k, v) = (normal(&[3, 4], 2), normal(&[3, 1], 3));
    let broken = crate::tools::with(&q, 0, f64::NAN);
    let y = reals(&R::attention(&broken, &k, &v, None, SCALE, true).unwrap());
    assert!(y[0].is_nan() && y[1].is_finite() && y[2].is_finite(), "{y:?}");
}

#[test]
fn keys_and_values_are_shared_by_heads_when_they_broadcast() {
    let (q, k, v) = (
        normal(&[2, 3, 4, 5], 1),
        normal(&[1, 1, 6, 5], 2),
        normal(&[1, 1, 6, 2], 3),
    );
    let repeated = |x: &T, width| R::expand(x, Shape::from([2, 3, 6, width])).unwrap();
    let expected = R::attention(&q, &repeated(&k, 5), &repeated(&v, 2), None, SCALE, true).unwrap();
    let shared = R::attention(&q, &k, &v, None, SCALE, true).unwrap();
    assert_close(&reals(&shared), &reals(&expected), 0.0);
    let matrix = |x: &T, dims: [usize; 2]| R::reshape(x, Shape::from(dims)).unwrap();
    let lower_rank = R::attention(&q, &matrix(&k, [6, 5]), &matrix(&v, [6, 2]), None, SCALE, true).unwrap();
    assert_close(&reals(&lower_rank), &reals(&expected), 0.0);
}
